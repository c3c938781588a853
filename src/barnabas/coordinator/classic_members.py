"""The members of a classic group: who is in, who was given an id and has yet to join, and who waits for an answer.

No time and no states here: those are `classic_group`'s. Order counts where one of several members is picked (leader,
ties of a vote), and it is the order in which they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from barnabas.coordinator.outcome import Token
from barnabas.wire.messages.k11_join_group import JoinGroupRequestProtocol

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""What a member can do: name and metadata of each protocol, the most preferred first."""


def protocols_of(requested: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """A copy, since the bytes of a request do not outlive it; of two with one name the first counts."""
    protocols: dict[str, bytes] = {}
    for protocol in requested:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(protocols.items())


@dataclass(slots=True)
class ClassicMember:
    """A member; `join_token` and `sync_token` are its requests that wait for the others.

    `is_new` until its first answer: it does not know its id yet, and so cannot send a heartbeat.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_token: Token | None = None
    sync_token: Token | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(f"member {self.member_id!r} does not support protocol {protocol_name!r}")

    @property
    def is_waiting(self) -> bool:
        return self.join_token is not None or self.sync_token is not None


class ClassicMembers:
    """Members by id, with what follows from them: the leader, the instance ids, and the protocols that all support."""

    __slots__ = ("_by_id", "_by_instance", "_supporters", "joined", "leader_id", "pending", "unsynced")

    def __init__(self) -> None:
        self._by_id: dict[str, ClassicMember] = {}
        self._by_instance: dict[str, ClassicMember] = {}
        self._supporters: Counter[str] = Counter()
        self.leader_id: str | None = None
        self.joined = 0  # how many wait for the answer to their JoinGroup
        self.pending: set[str] = set()  # given an id and not yet seen with it (KIP-394)
        self.unsynced: set[str] = set()  # answered the JoinGroup, and not yet seen with a SyncGroup

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def get(self, member_id: str) -> ClassicMember | None:
        return self._by_id.get(member_id)

    def of_instance(self, group_instance_id: str | None) -> ClassicMember | None:
        return None if group_instance_id is None else self._by_instance.get(group_instance_id)

    @property
    def leader(self) -> ClassicMember | None:
        return None if self.leader_id is None else self._by_id[self.leader_id]

    @property
    def all_joined(self) -> bool:
        return self.joined == len(self._by_id) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asked for; clients set it to their max.poll.interval.ms."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: ClassicMember) -> None:
        self._by_id[member.member_id] = member
        if member.group_instance_id is not None:
            self._by_instance[member.group_instance_id] = member
        self._supporters.update(name for name, _ in member.protocols)
        self.joined += member.join_token is not None
        self.pending.discard(member.member_id)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> ClassicMember | None:
        """Take out a member or the claim of a pending one. A leader is followed by the eldest of the others."""
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        member = self._by_id.pop(member_id, None)
        if member is not None:
            self._drop_support(member)
            self.joined -= member.join_token is not None
            if member.group_instance_id is not None:
                del self._by_instance[member.group_instance_id]
            if self.leader_id == member_id:
                self.leader_id = next(iter(self._by_id), None)
        return member

    def update(
        self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._drop_support(member)
        self._supporters.update(name for name, _ in protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def rename(self, member: ClassicMember, member_id: str) -> ClassicMember:
        """The same member, waiting for nothing, under another id."""
        was_leader = self.leader_id == member.member_id
        self.remove(member.member_id)
        renamed = replace(member, member_id=member_id, is_new=False, join_token=None, sync_token=None)
        self.add(renamed)
        if was_leader:
            self.leader_id = member_id
        return renamed

    def await_join(self, member: ClassicMember, token: Token) -> None:
        self.joined += member.join_token is None
        member.join_token = token

    def take_join_token(self, member: ClassicMember) -> Token | None:
        token, member.join_token = member.join_token, None
        self.joined -= token is not None
        return token

    def elect(self) -> bool:
        """Let the leader be one who has joined, if anybody has."""
        leader = self.leader
        if leader is None or leader.join_token is not None:
            return leader is not None
        for member in self:
            if member.join_token is not None:
                self.leader_id = member.member_id
                return True
        return False

    def all_support_one_of(self, protocol_names: Iterable[str]) -> bool:
        return any(self._supporters[name] == len(self._by_id) for name in protocol_names)

    def choose_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support, and the most votes win."""
        everybody = len(self._by_id)
        votes = Counter(
            next(name for name, _ in member.protocols if self._supporters[name] == everybody) for member in self
        )
        return votes.most_common(1)[0][0]

    def _drop_support(self, member: ClassicMember) -> None:
        for name, _ in member.protocols:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]
