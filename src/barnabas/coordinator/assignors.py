"""Who shall read which partition: the assignors that run in the coordinator (KIP-848).

`uniform` gives every member the same number of partitions, give or take one, and moves as few as that allows. Where
members subscribe to different topics, give or take one is not always to be had; then no chain of handovers from a
member to one that has at least two fewer is left. `range` deals each topic out in runs of neighbouring partitions, in
the order of the members, so that partition n of topics with the same number of partitions goes to the same member.

Both are functions of their arguments alone: the same group gets the same assignment, in whatever order it is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; a topic without partitions is left out."""

NO_PARTITIONS: Assignment = {}


class MemberSpec(NamedTuple):
    """What an assignor knows of a member. `previous` is its share of the assignment before."""

    instance_id: str | None
    topic_ids: frozenset[bytes]
    previous: Assignment


Assignor: TypeAlias = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Assignment]]
"""Members by id, and the number of partitions of every topic; a topic that is not told of does not exist."""

_TopicPartition: TypeAlias = tuple[bytes, int]


def assign_range(members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(members, key=lambda id_: _range_order(id_, members[id_])):
        for topic_id in members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, member_ids in subscribers.items():
        quota, extra = divmod(partition_counts.get(topic_id, 0), len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + quota + (position < extra)
            if start == end:
                break
            assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _range_order(member_id: str, spec: MemberSpec) -> tuple[bool, str]:
    """Static members first, by the name that outlives a restart."""
    return (True, member_id) if spec.instance_id is None else (False, spec.instance_id)


def assign_uniform(members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    if not members:
        return {}
    kept, unassigned = _keep_previous(members, partition_counts)
    if len({spec.topic_ids for spec in members.values()}) == 1:
        _deal_evenly(kept, unassigned)
    else:
        _Balancer(members, kept).deal(unassigned)
    return {member_id: _as_assignment(partitions) for member_id, partitions in kept.items()}


def _keep_previous(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]
) -> tuple[dict[str, list[_TopicPartition]], list[_TopicPartition]]:
    """What every member had and may keep, and what then nobody has, both in order."""
    taken: set[_TopicPartition] = set()
    kept: dict[str, list[_TopicPartition]] = {}
    subscribed: set[bytes] = set()
    for member_id in sorted(members):
        spec = members[member_id]
        subscribed |= spec.topic_ids
        mine = [
            (topic_id, partition)
            for topic_id in sorted(spec.previous.keys() & spec.topic_ids)
            for partition in sorted(spec.previous[topic_id])
            if partition < partition_counts.get(topic_id, 0) and (topic_id, partition) not in taken
        ]
        taken.update(mine)
        kept[member_id] = mine
    unassigned = [
        (topic_id, partition)
        for topic_id in sorted(subscribed)
        for partition in range(partition_counts.get(topic_id, 0))
        if (topic_id, partition) not in taken
    ]
    return kept, unassigned


def _deal_evenly(kept: dict[str, list[_TopicPartition]], unassigned: list[_TopicPartition]) -> None:
    """Everybody reads every topic, so only the numbers count: what is over the quota is dealt to those below it."""
    quota, extra = divmod(len(unassigned) + sum(map(len, kept.values())), len(kept))
    for mine in kept.values():
        allowed = quota
        if len(mine) > quota and extra:
            allowed += 1
            extra -= 1
        unassigned += mine[allowed:]
        del mine[allowed:]
    unassigned.sort()
    hungry = deque(mine for mine in kept.values() if len(mine) < quota)
    position = 0
    while hungry:  # in turns, so that the partitions of one topic spread
        mine = hungry.popleft()
        mine.append(unassigned[position])
        position += 1
        if len(mine) < quota:
            hungry.append(mine)
    content = [mine for mine in kept.values() if len(mine) == quota]  # whoever kept one more has had its turn
    for mine, partition in zip(content, unassigned[position:]):
        mine.append(partition)


class _Balancer:
    """Deals to the least loaded, then hands over along chains of members until no chain makes it more even.

    A member can take over from another what the other has of a topic that both read. A chain of such steps moves one
    partition's worth of load from its first member to its last. The search starts at all the members with the least
    load and goes backwards: if it meets nobody with two more, then those it met are as even as they can be, and
    nobody else can give them anything, so they are done with.
    """

    def __init__(self, members: Mapping[str, MemberSpec], kept: dict[str, list[_TopicPartition]]) -> None:
        self._kept = kept
        self._topics = {member_id: sorted(members[member_id].topic_ids) for member_id in kept}
        self._subscribers: dict[bytes, list[str]] = {}
        self._owned: dict[bytes, dict[str, list[int]]] = {}  # by topic and member: what it has, the newest last
        for member_id, topic_ids in self._topics.items():
            for topic_id in topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member_id)
                self._owned.setdefault(topic_id, {})
        self._load = {member_id: len(mine) for member_id, mine in kept.items()}
        for member_id, mine in kept.items():
            for topic_id, partition in mine:
                self._owned[topic_id].setdefault(member_id, []).append(partition)

    def deal(self, unassigned: list[_TopicPartition]) -> None:
        by_choice = sorted(unassigned, key=lambda tp: (len(self._subscribers[tp[0]]), tp))  # the pickiest topics first
        for topic_id, partitions in _runs(by_choice):
            for member_id, partition in zip(self._least_loaded(topic_id, len(partitions)), partitions, strict=True):
                self._owned[topic_id].setdefault(member_id, []).append(partition)
        self._take_directly()
        self._even_out()
        for mine in self._kept.values():
            mine.clear()
        for topic_id, owners in self._owned.items():
            for member_id, partitions in owners.items():
                self._kept[member_id] += [(topic_id, partition) for partition in partitions]

    def _least_loaded(self, topic_id: bytes, count: int) -> Iterator[str]:
        """The readers of a topic, each as often as it is the one with the least."""
        levels: dict[int, deque[str]] = {}
        for member_id in self._subscribers[topic_id]:
            levels.setdefault(self._load[member_id], deque()).append(member_id)
        level = min(levels)
        while count:
            if not levels.get(level):
                level += 1
                continue
            member_id = levels[level].popleft()
            self._load[member_id] += 1
            levels.setdefault(level + 1, deque()).append(member_id)
            count -= 1
            yield member_id

    def _take_directly(self) -> None:
        """The chains of one step, which are nearly all there are, without a search for each."""
        load = self._load
        most = max(load.values())
        takers = [(load[member_id], member_id) for member_id in load if load[member_id] + 2 <= most]
        heapify(takers)
        owners = {topic_id: [(-load[owner], owner) for owner in owned] for topic_id, owned in self._owned.items()}
        for heap in owners.values():
            heapify(heap)
        while takers:
            _, taker = heappop(takers)
            best = (0, "", b"")
            for topic_id in self._topics[taker]:
                heap = owners[topic_id]
                while heap and (heap[0][1] not in self._owned[topic_id] or -heap[0][0] > load[heap[0][1]]):
                    _, owner = heappop(heap)  # it has given since, or has nothing left
                    if owner in self._owned[topic_id]:
                        heappush(heap, (-load[owner], owner))
                if heap and heap[0] < best[:2]:
                    best = (*heap[0], topic_id)
            _, giver, topic_id = best
            if giver and load[giver] >= load[taker] + 2:
                self._hand_over(topic_id, giver, taker)
                heappush(takers, (load[taker], taker))

    def _hand_over(self, topic_id: bytes, giver: str, taker: str) -> None:
        owners = self._owned[topic_id]
        owners.setdefault(taker, []).append(owners[giver].pop())
        if not owners[giver]:
            del owners[giver]
        self._load[giver] -= 1
        self._load[taker] += 1

    def _even_out(self) -> None:
        open_members = dict.fromkeys(self._kept)
        while open_members:
            least = min(self._load[member_id] for member_id in open_members)
            receivers = [member_id for member_id in open_members if self._load[member_id] == least]
            reached, giver = self._search(receivers, least + 2)
            if giver is None:
                for member_id in reached:
                    open_members.pop(member_id, None)
                continue
            step = reached[giver]
            while step is not None:
                topic_id, taker = step
                self._hand_over(topic_id, giver, taker)
                giver, step = taker, reached[taker]

    def _search(self, receivers: list[str], wanted_load: int) -> tuple[dict[str, tuple[bytes, str] | None], str | None]:
        """From where a receiver can get something: the members met, each with its next step, and the nearest giver
        that has at least the wanted load, of several the one that has most."""
        reached: dict[str, tuple[bytes, str] | None] = dict.fromkeys(receivers)
        seen_topics: set[bytes] = set()
        level = receivers
        while level:
            further = []
            for taker in level:
                for topic_id in self._topics[taker]:
                    if topic_id in seen_topics:
                        continue
                    seen_topics.add(topic_id)
                    for owner in self._owned[topic_id]:
                        if owner not in reached:
                            reached[owner] = (topic_id, taker)
                            further.append(owner)
            giver = max(further, key=self._load.__getitem__, default=None)
            if giver is not None and self._load[giver] >= wanted_load:
                return reached, giver
            level = further
        return reached, None


def _runs(topic_partitions: list[_TopicPartition]) -> Iterator[tuple[bytes, list[int]]]:
    """Neighbours of one topic together."""
    start = 0
    while start < len(topic_partitions):
        topic_id = topic_partitions[start][0]
        end = start
        while end < len(topic_partitions) and topic_partitions[end][0] == topic_id:
            end += 1
        yield topic_id, [partition for _, partition in topic_partitions[start:end]]
        start = end


def _as_assignment(topic_partitions: list[_TopicPartition]) -> Assignment:
    by_topic: dict[bytes, set[int]] = {}
    for topic_id, partition in topic_partitions:
        by_topic.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in by_topic.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
