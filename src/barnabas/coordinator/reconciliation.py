"""How a member of a consumer group gets from what it has to what it shall have: one step for each heartbeat.

    has = assigned + pending revocation          shall have = its part of the target assignment

    STABLE, a newer target        --> next step
    UNREVOKED_PARTITIONS          --> next step, once the member no longer reports what it must give up
    UNRELEASED_PARTITIONS         --> next step

    next step:  something to give up, and not yet given up   --> UNREVOKED_PARTITIONS, in its old epoch
                something that another member still has       --> UNRELEASED_PARTITIONS, in the target's epoch
                otherwise                                     --> STABLE, in the target's epoch

A partition is handed to a member only when nobody has it: revocation comes first. That is what makes one owner at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import replace
from typing import TypeAlias

from barnabas.coordinator.assignors import Assignment
from barnabas.coordinator.consumer_member import ConsumerMember, MemberState, Owned

Reported: TypeAlias = Mapping[bytes, Set[int]] | None
"""The partitions that a member says it owns; None if it does not say, and then it may own any."""

_NOTHING: Mapping[int, int] = {}


def reconcile(
    member: ConsumerMember,
    assignment_epoch: int,
    target: Assignment,
    subscribed_topic_ids: Collection[bytes],
    reported: Reported,
    is_free: Callable[[bytes, int], bool],
    subscription_changed: bool,
) -> ConsumerMember:
    """The member after this heartbeat; the very same if there is nothing to do yet."""
    if member.state is MemberState.STABLE and member.member_epoch == assignment_epoch:
        return _drop_unsubscribed(member, subscribed_topic_ids, reported) if subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(reported, member.pending_revocation):
        return _drop_unsubscribed(member, subscribed_topic_ids, reported) if subscription_changed else member
    return _next_step(member, assignment_epoch, target, subscribed_topic_ids, reported, is_free)


def _next_step(
    member: ConsumerMember,
    assignment_epoch: int,
    target: Assignment,
    subscribed_topic_ids: Collection[bytes],
    reported: Reported,
    is_free: Callable[[bytes, int], bool],
) -> ConsumerMember:
    assigned: dict[bytes, dict[int, int]] = {}
    to_revoke: dict[bytes, dict[int, int]] = {}
    to_assign: list[tuple[bytes, int]] = []
    unreleased = False
    for topic_id in sorted(target.keys() | member.assigned.keys()):
        # the target may be older than the subscription; nobody gets what it does not want
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed_topic_ids else frozenset()
        had = member.assigned.get(topic_id, _NOTHING)
        kept = {partition: epoch for partition, epoch in had.items() if partition in wanted}
        if kept:
            assigned[topic_id] = kept
        if len(kept) < len(had):
            to_revoke[topic_id] = {partition: epoch for partition, epoch in had.items() if partition not in wanted}
        revoking = member.pending_revocation.get(topic_id, _NOTHING)
        for partition in sorted(wanted - kept.keys()):
            if partition in revoking or is_free(topic_id, partition):
                to_assign.append((topic_id, partition))
            else:
                unreleased = True
    if to_revoke and _still_owns(reported, to_revoke):
        return member.moved_to(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, to_revoke)
    for topic_id, partition in to_assign:
        assigned.setdefault(topic_id, {})[partition] = assignment_epoch
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    moved = member.moved_to(state, assignment_epoch, assigned, {})
    return member if moved == member else moved  # it may go on waiting


def _drop_unsubscribed(
    member: ConsumerMember, subscribed_topic_ids: Collection[bytes], reported: Reported
) -> ConsumerMember:
    """A changed subscription takes effect before the target does, which may be computed later."""
    dropped = {topic_id: had for topic_id, had in member.assigned.items() if topic_id not in subscribed_topic_ids}
    if not dropped:
        return member
    assigned = {topic_id: had for topic_id, had in member.assigned.items() if topic_id not in dropped}
    to_revoke: dict[bytes, Mapping[int, int]] = dict(member.pending_revocation)
    for topic_id, had in dropped.items():
        to_revoke[topic_id] = {**to_revoke.get(topic_id, _NOTHING), **had}
    if _still_owns(reported, to_revoke):
        return member.moved_to(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, to_revoke)
    return replace(member, previous_member_epoch=member.member_epoch, assigned=assigned)


def _still_owns(reported: Reported, revoked: Owned) -> bool:
    if reported is None:
        return True
    return any(
        partition in revoked[topic_id]
        for topic_id, partitions in reported.items()
        if topic_id in revoked
        for partition in partitions
    )
