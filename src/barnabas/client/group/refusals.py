"""Why a group refuses a member for good, and what to do about it."""

from __future__ import annotations

from barnabas.client.errors import refused
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.values import Subscription
from barnabas.core.errors import ErrorCode, KafkaError

_EXPLAINED: dict[int, str] = {
    ErrorCode.FENCED_INSTANCE_ID: (
        "another member took over group_instance_id={instance!r}; give every member an id of its own"
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "group_instance_id={instance!r} is in use by another member; "
        "give every member an id of its own, or wait until the session of one that died has ended"
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "none of partition_assignment_strategy={strategy} is shared by all its members; name one that they use"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the broker does not allow session_timeout_ms={session}; "
        "its limits are group.min.session.timeout.ms and group.max.session.timeout.ms"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the broker has no group_remote_assignor={remote!r}; it has 'uniform' and 'range'",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "it is full; the broker's limit is group.max.size or group.consumer.max.size",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker does not take pattern={pattern!r}; its syntax must be RE2's",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this client may not read in it; it needs the operation READ on the group",
}


def refusal(code: int, options: GroupOptions, subscription: Subscription, message: str | None) -> KafkaError:
    """In words of ours where they help more than the broker's."""
    explained = _EXPLAINED.get(code)
    if explained is not None:
        message = explained.format(
            instance=options.group_instance_id,
            strategy=list(options.strategy),
            session=options.session_ms,
            remote=options.group_remote_assignor,
            pattern=subscription.pattern,
        )
    return refused(code, f"group {options.group_id!r}", message)
