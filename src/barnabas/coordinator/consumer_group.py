"""A group of the consumer protocol (KIP-848), in which the coordinator deals out the partitions.

Three epochs drive it. A change of members, subscriptions or topics raises the *group epoch*. When it is above the
*assignment epoch*, the next heartbeat deals the partitions out anew: a target for every member. Each member is then led
to its target by its own heartbeats, giving up what it must before anybody gets it, until its *member epoch* is the
assignment epoch. Nobody waits for anybody else in a request; every heartbeat is answered at once.

    member epoch 0 joins, > 0 goes on, -1 leaves, -2 leaves for a while (a static member, which keeps its partitions)

A member that is silent for the session time-out, or does not give up in its rebalance time-out what it must, is put
out. So is one with a wrong epoch (FENCED_MEMBER_EPOCH): it has to drop everything and join again. The one exception is
the epoch before the current one: the answer that told of the new one may have been lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from barnabas.coordinator.assignors import ASSIGNORS, NO_PARTITIONS, MemberSpec
from barnabas.coordinator.consumer_member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
    Owned,
    as_assignment,
)
from barnabas.coordinator.consumer_view import ConsumerGroupView
from barnabas.coordinator.heartbeat_request import fenced, reported_partitions, validate_epoch, validate_heartbeat
from barnabas.coordinator.outcome import Now, Outcome, Token
from barnabas.coordinator.reconciliation import Reported, reconcile
from barnabas.coordinator.subscriptions import Topics, compile_pattern, matching_topics, metadata_hash
from barnabas.coordinator.timers import TimerKey, Timers
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import random_uuid, uuid_text
from barnabas.wire.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

SESSION = "session"
"""No sign of life of a member."""
REBALANCE = "rebalance"
"""A member has not given up what it must."""
REJOIN = "rejoin"
"""A classic member was told to join again, and has not."""
SYNC = "sync"
"""A classic member has joined, and has not fetched its assignment."""
_KINDS = (SESSION, REBALANCE, REJOIN, SYNC)


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """`assignors`: names in the order of preference. `assignment_interval_ms`: at least so long from one target to the
    next, so that of many changes in a row not each deals out anew (KIP-1263)."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    assignment_interval_ms: int = 1_000


class ConsumerGroup(ConsumerGroupView):
    """One group. Its timers are the shard's, under keys with its id; `expire` is told of those that are due.

    The outcome of a request that is refused has no records, and the group is as it was.
    """

    def __init__(self, group_id: str, config: ConsumerGroupConfig, timers: Timers[TimerKey], random: Random) -> None:
        super().__init__(group_id)
        self.config = config
        self.timers = timers
        self._random = random
        self._topics: Topics | None = None  # those that the state takes into account; none yet after loading

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client_id: str,
        client_host: str,
        topics: Topics,
        token: Token,
        now: Now,
    ) -> Outcome:
        try:
            validate_heartbeat(request, version, self.config.assignors)
            if request.member_epoch < 0:
                return self._leave(request, token)
            return self._heartbeat(request, client_id, client_host, topics, token, now)
        except KafkaError as refusal:
            error = ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
            return Outcome().reply(token, error)

    def _heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        topics: Topics,
        token: Token,
        now: Now,
    ) -> Outcome:
        joins = request.member_epoch == JOIN_EPOCH
        reported = reported_partitions(request.topic_partitions)
        self.refuse_if_full(request.member_id)
        member_id = request.member_id or self.new_member_id()
        if joins:
            member = self.joining_member(member_id, request.instance_id, is_classic=False)
        else:
            member = self.known_member(member_id, request.instance_id)
            validate_epoch(member, request.member_epoch, reported)
        if member.state is MemberState.UNKNOWN and reported != {}:
            raise fenced("The consumer group member is in a unknown state.")
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        updated = replace(
            member,
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            client_id=client_id,
            client_host=client_host,
            subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
            subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
            ),
            server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
            classic=None,
        )
        if updated.subscribed_topic_regex not in self.regexes and updated.subscribed_topic_regex:
            compile_pattern(updated.subscribed_topic_regex)

        out = Outcome()
        now_has = self.advance(member, updated, reported, topics, now, out)
        self.set_timer(SESSION, member_id, now, self.config.session_timeout_ms)
        is_full = request.rebalance_timeout_ms != -1 and reported is not None and not (names is None and regex is None)
        tells = joins or is_full or as_assignment(now_has.assigned) != as_assignment(member.assigned)
        return out.reply(
            token,
            ConsumerGroupHeartbeatResponse(
                member_id=member_id,
                member_epoch=now_has.member_epoch,
                heartbeat_interval_ms=self.config.heartbeat_interval_ms,
                assignment=_told(now_has.assigned) if tells else None,
            ),
        )

    def _leave(self, request: ConsumerGroupHeartbeatRequest, token: Token) -> Outcome:
        member = self.known_member(request.member_id, request.instance_id)
        out = Outcome()
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            self.stop_timer(REBALANCE, member.member_id)
            kept = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()}
            self.write_current(
                out.records,
                replace(member, member_epoch=LEAVE_STATIC_EPOCH, assigned=kept, pending_revocation={}),
            )
        else:
            self.remove([member], out)
        response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        return out.reply(token, response)

    def metadata_changed(self, topics: Topics, now: Now) -> Outcome:
        """Topics came, went or grew. Every request notices by itself; this is for groups whose members wait for one."""
        out = Outcome()
        self._raise_epoch(topics, False, now, out)
        return out

    def loaded(self, now: Now) -> Outcome:
        """Sessions begin anew with the coordinator."""
        for member in self.members.values():
            self.set_timer(SESSION, member.member_id, now, self.session_timeout_ms(member))
            if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
                self.set_timer(REBALANCE, member.member_id, now, member.rebalance_timeout_ms)
        return Outcome()

    def expire(self, key: TimerKey, now: Now) -> Outcome:
        """Whatever a member did not do in time, it is put out."""
        out = Outcome()
        member = self.members.get(key.member_id)
        if member is not None:
            self.remove([member], out)
        return out

    # The steps that requests of both protocols are made of. Those that refuse come first, and change nothing.

    def refuse_if_full(self, member_id: str) -> None:
        if len(self.members) >= self.config.max_size and member_id not in self.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self.config.max_size} members.",
            )

    def new_member_id(self) -> str:
        return uuid_text(random_uuid(self._random))

    def joining_member(self, member_id: str, instance_id: str | None, *, is_classic: bool) -> ConsumerMember:
        """The member as it is, or a new one, or one that is to take the place of the static member of its name."""
        if instance_id is None:
            return self.members.get(member_id) or ConsumerMember(member_id)
        existing = self.static_member(instance_id)
        if existing is None:
            return self.members.get(member_id) or ConsumerMember(member_id)
        if not (is_classic or existing.is_classic or existing.member_epoch == LEAVE_STATIC_EPOCH):
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance"
                f" id is owned by {existing.member_id} member.",
            )
        return replace(existing, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)

    def known_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is None:
            return self.member(member_id)
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    def advance(
        self,
        member: ConsumerMember,
        updated: ConsumerMember,
        reported: Reported,
        topics: Topics,
        now: Now,
        out: Outcome,
    ) -> ConsumerMember:
        """Take in what a member says of itself, and lead it one step further: it is then in the state returned."""
        self._take_place(member, out)
        is_subscribed_anew = (
            updated.subscribed_topic_names != member.subscribed_topic_names
            or updated.subscribed_topic_regex != member.subscribed_topic_regex
        )
        if updated != member or member.member_id not in self.members:
            self.write_member(out.records, updated)
        self._raise_epoch(topics, is_subscribed_anew, now, out)
        self._assign_if_due(topics, now, out)
        current = self.members[updated.member_id]
        if is_subscribed_anew or not current.is_reconciled_to(self.assignment_epoch):
            target = self.targets.get(current.member_id, NO_PARTITIONS)
            topic_ids = {topics[name].id for name in self.topics_of(current) if name in topics}
            moved = reconcile(
                current, self.assignment_epoch, target, topic_ids, reported, self.is_free, is_subscribed_anew
            )
            if moved is not current:
                self.write_current(out.records, moved)
                self._time_revocation(moved, now)
        return self.members[updated.member_id]

    def remove(self, members: Iterable[ConsumerMember], out: Outcome) -> None:
        for member in members:
            for kind in _KINDS:
                self.stop_timer(kind, member.member_id)
            self.remove_member(out.records, member.member_id)
        self._forget_regexes(out)
        metadata = self.metadata_hash
        if self._topics is not None:
            metadata = metadata_hash(self.subscribed_topics(), self._topics)
        self.write_epoch(out.records, self.group_epoch + 1, metadata)

    def session_timeout_ms(self, member: ConsumerMember) -> int:
        return self.config.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms

    def set_timer(self, kind: str, member_id: str, now: Now, after_ms: int) -> None:
        self.timers.set(TimerKey(self.group_id, kind, member_id), now.monotonic_ms + after_ms)

    def stop_timer(self, kind: str, member_id: str) -> None:
        self.timers.cancel(TimerKey(self.group_id, kind, member_id))

    def stop_timers(self) -> None:
        """When the group goes, or becomes a classic one."""
        for member_id in self.members:
            for kind in _KINDS:
                self.stop_timer(kind, member_id)

    def _take_place(self, member: ConsumerMember, out: Outcome) -> None:
        """A static member is back under another id, or after it had left for a while: what was its own is its own."""
        predecessor = self.static_member(member.instance_id)
        if predecessor is None or predecessor == member:
            return
        target = self.targets.get(predecessor.member_id, NO_PARTITIONS)
        for kind in _KINDS:
            self.stop_timer(kind, predecessor.member_id)
        self.remove_member(out.records, predecessor.member_id)
        self.write_member(out.records, member)
        self.write_target(out.records, member.member_id, target)
        self.write_current(out.records, member)

    def _raise_epoch(self, topics: Topics, is_subscribed_anew: bool, now: Now, out: Outcome) -> None:
        """A new group epoch, if the group reads something else than before."""
        if not is_subscribed_anew and topics is self._topics:
            return
        resolved_anew = self._resolve_regexes(topics, now, out)
        self._topics = topics
        metadata = metadata_hash(self.subscribed_topics(), topics)
        self.remove_partition_metadata(out.records)
        if is_subscribed_anew or resolved_anew or metadata != self.metadata_hash:
            self.write_epoch(out.records, self.group_epoch + 1, metadata)

    def _resolve_regexes(self, topics: Topics, now: Now, out: Outcome) -> bool:
        """Expressions meet only the topics that they have not met, and let go of those that are gone."""
        self._forget_regexes(out)
        known = self._topics
        came = topics.keys() if known is None else topics.keys() - known.keys()
        went = bool(known is None or known.keys() - topics.keys())
        changed = False
        for regex in self.regex_subscribers:
            resolved = self.regexes.get(regex)
            if resolved is None or known is None:
                matched = matching_topics(regex, topics)
            elif came or went:
                matched = (resolved.topics & topics.keys()) | matching_topics(regex, came)
            else:
                continue
            if resolved is None or matched != resolved.topics:
                self.write_regex(out.records, regex, matched, now.wall_ms)
                changed = True
        return changed

    def _forget_regexes(self, out: Outcome) -> None:
        for regex in [regex for regex in self.regexes if regex not in self.regex_subscribers]:
            self.remove_regex(out.records, regex)

    def _assign_if_due(self, topics: Topics, now: Now, out: Outcome) -> None:
        last_ms = self.assignment_timestamp_ms
        if self.group_epoch <= self.assignment_epoch:
            return
        if last_ms and last_ms <= now.wall_ms < last_ms + self.config.assignment_interval_ms:
            return
        specs: dict[str, MemberSpec] = {}
        topic_ids: dict[frozenset[str], frozenset[bytes]] = {}
        for member_id, member in self.members.items():
            names = self.topics_of(member)
            if names not in topic_ids:
                topic_ids[names] = frozenset(topics[name].id for name in names if name in topics)
            specs[member_id] = MemberSpec(
                member.instance_id, topic_ids[names], self.targets.get(member_id, NO_PARTITIONS)
            )
        partition_counts = {
            topics[name].id: topics[name].partitions for name in self.subscribed_topics() if name in topics
        }
        assign = ASSIGNORS[self.preferred_assignor(self.config.assignors)]
        for member_id, target in assign(specs, partition_counts).items():
            if self.targets.get(member_id) != target:
                self.write_target(out.records, member_id, target)
        self.write_assignment_epoch(out.records, self.group_epoch, now.wall_ms)

    def _time_revocation(self, member: ConsumerMember, now: Now) -> None:
        if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
            self.set_timer(REBALANCE, member.member_id, now, member.rebalance_timeout_ms)
        else:
            self.stop_timer(REBALANCE, member.member_id)


def _told(owned: Owned) -> Assignment:
    return Assignment([TopicPartitions(topic_id, sorted(partitions)) for topic_id, partitions in owned.items()])
