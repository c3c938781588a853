"""What administrators are shown of groups: ListGroups, DescribeGroups, ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.coordinator.classic_group import ClassicGroup
from barnabas.coordinator.consumer_group import ConsumerGroup
from barnabas.coordinator.group import Group
from barnabas.coordinator.subscriptions import Topics
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages import k15_describe_groups as k15
from barnabas.wire.messages import k69_consumer_group_describe as k69
from barnabas.wire.messages.k16_list_groups import ListedGroup

_FIRST_VERSION_WITH_NOT_FOUND = 6  # of DescribeGroups (KIP-1043)


def listed(groups: Iterable[Group], states_filter: Iterable[str], types_filter: Iterable[str]) -> list[ListedGroup]:
    """Filters may be spelled in capitals; an empty one lets everything pass."""
    states, types = ({name.strip().lower() for name in names} for names in (states_filter, types_filter))
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state_name, group.group_type.value)
        for group in groups
        if (not states or group.state_name.lower() in states) and (not types or group.group_type.value in types)
    ]


def described_classic(groups: Mapping[str, Group], group_id: str, version: int) -> k15.DescribedGroup:
    """A group that is not there, or that speaks another protocol, is called dead."""
    group = groups.get(group_id)
    if isinstance(group, ClassicGroup):
        return group.described()
    dead = k15.DescribedGroup(group_id=group_id, group_state="Dead")
    if version >= _FIRST_VERSION_WITH_NOT_FOUND:
        dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        dead.error_message = f"Group {group_id} {'not found.' if group is None else 'is not a classic group.'}"
    return dead


def described_consumer(
    groups: Mapping[str, Group], group_id: str, topics: Topics, assignors: Iterable[str]
) -> k69.DescribedGroup:
    group = groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group.described(topics, assignors)
    if not group_id:
        return k69.DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    return k69.DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {'not found.' if group is None else 'is not a consumer group.'}",
        group_id=group_id,
    )
