"""A plan that spreads replicas evenly over brokers, and moves as few of them as that takes.

The rules, the first one counting most:

1. A partition has as many replicas as it should, each on another broker, and none on a broker that is to be empty.
2. They stand in as many racks as there can be. (One broker without a rack, and racks do not count.)
3. The replicas of brokers differ by one at the most, where racks allow it; then the preferred leaders do.
4. As few replicas as possible move, and, of those that could, one of the topic that is most unevenly spread.

Replicas without a place go to the emptiest broker first. Then, as long as one broker has two more than another, a
replica moves between them: directly, or, where racks forbid that, in a chain over brokers between. The shortest chain
is taken, and its moves never disturb each other: two moves of one partition into one rack could be had in one.
Leaders are evened out in the same way, by the order of replicas, which moves no data.

The same input has the same plan in every run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple


class Place(NamedTuple):
    """A partition, by the name of its topic."""

    topic: str
    partition: int


Assignment = Mapping[Place, Sequence[int]]
_Worth = tuple[int, int, Place]
"""Of a move, the least being the best: what it adds to the replicas that move, and to the unevenness of its topic."""


def balance(
    assignment: Assignment,
    racks: Mapping[int, str | None],
    factors: Mapping[str, int] | None = None,
    only: Set[str] | None = None,
) -> dict[Place, tuple[int, ...]]:
    """New replicas, the preferred leader first, of the partitions that change.

    `racks` has the brokers that may have replicas; others are emptied. `factors` has the topics whose number of
    replicas changes. With `only`, other topics than these stay as they are. ValueError if there are fewer brokers than
    a partition needs.
    """
    stays = {place for place in assignment if only is not None and place.topic not in only}
    plan = _Plan(assignment, racks, stays)
    for place, replicas in sorted(assignment.items()):
        if place in stays:
            continue
        factor = (factors or {}).get(place.topic, len(replicas))
        if factor > len(racks):
            raise ValueError(f"{place.topic} cannot have {factor} replicas on {len(racks)} brokers")
        plan.fit(place, factor)
    plan.fill()
    plan.level()
    plan.level_leaders()
    return {
        place: tuple(replicas)
        for place, replicas in sorted(plan.replicas.items())
        if replicas != list(assignment[place]) and place not in stays
    }


class _Plan:
    """Replicas as they will be, and what each broker has of them."""

    def __init__(self, assignment: Assignment, racks: Mapping[int, str | None], stays: Set[Place]) -> None:
        self.replicas = {place: [b for b in assignment[place] if b in racks] for place in sorted(assignment)}
        self._before = assignment
        self._stays = stays
        self._brokers = sorted(racks)
        has_racks = all(rack is not None for rack in racks.values())
        self._rack_of = {broker: racks[broker] if has_racks else str(broker) for broker in self._brokers}
        self._rack_count = len(set(self._rack_of.values()))
        self._vacant: list[Place] = []
        self._best_moves: dict[tuple[int, int], list[_Worth]] = {}
        self._on: dict[int, set[Place]] = {broker: set() for broker in self._brokers}
        self._of_topic: Counter[tuple[int, str]] = Counter()
        for place, replicas in self.replicas.items():
            for broker in replicas:
                self._on[broker].add(place)
                self._of_topic[broker, place.topic] += 1

    # replicas

    def fit(self, place: Place, factor: int) -> None:
        """Drop replicas that are too many or share a rack without need; remember those that are missing."""
        replicas = self.replicas[place]
        racks = min(factor, self._rack_count)
        while (missing := factor - len(replicas)) < 0 or self._spread(replicas) + missing < racks:
            crowds = Counter(self._rack_of[broker] for broker in replicas)
            # The first one leads, as a rule: it goes only where that saves a rack.
            self._drop(
                place, max(replicas, key=lambda b: (crowds[self._rack_of[b]], b != replicas[0], self._load(b), b))
            )
        self._vacant += [place] * missing

    def fill(self) -> None:
        """Give each missing replica to the emptiest broker that may have it."""
        for place in self._vacant:
            may = [broker for broker in self._brokers if self._may_join(place, broker)]
            self._add(place, min(may, key=lambda b: (self._load(b), self._of_topic[b, place.topic], b)))

    def level(self) -> None:
        """Move replicas from full brokers to empty ones until they differ by one, or nothing helps."""
        stuck: set[int] = set()
        while givers := [b for b in self._brokers if b not in stuck and self._load(b) >= self._least() + 2]:
            giver = max(givers, key=lambda b: (self._load(b), -b))
            taker = min(self._brokers, key=lambda b: (self._load(b), b))
            place = self._best(giver, taker)
            if place is not None:
                self._move(place, giver, taker)
                continue
            enough = self._load(giver) - 2
            chain = _chain(giver, {b for b in self._brokers if self._load(b) <= enough}, self._steps)
            for place, source, target in chain:
                self._move(place, source, target)
            if chain:
                self._best_moves.clear()
                stuck.clear()
            else:
                stuck.add(giver)

    def _best(self, giver: int, taker: int) -> Place | None:
        """The best place to move directly.

        Its worth only falls while moves are direct, for a full broker takes nothing and an empty one gives nothing. So
        the heap of a pair is made once, and mended as it is used.
        """
        heap = self._best_moves.get((giver, taker))
        if heap is None:
            moves = (self._worth(place, giver, taker) for place in self._on[giver])
            heap = self._best_moves[giver, taker] = [worth for worth in moves if worth is not None]
            heapify(heap)
        while heap:
            worth = self._worth(heap[0][2], giver, taker)
            if worth is None:
                heappop(heap)
            elif worth != heap[0]:
                heapreplace(heap, worth)
            else:
                return worth[2]
        return None

    def _worth(self, place: Place, giver: int, taker: int) -> _Worth | None:
        """None for a move that may not be."""
        if place in self._stays or place not in self._on[giver] or not self._may_replace(place, giver, taker):
            return None
        moves = (taker not in self._before[place]) - (giver not in self._before[place])
        return moves, self._of_topic[taker, place.topic] - self._of_topic[giver, place.topic], place

    def _steps(self, giver: int) -> Iterator[tuple[Place, int]]:
        for taker in self._brokers:
            worth = [w for place in self._on[giver] if (w := self._worth(place, giver, taker)) is not None]
            if worth:
                yield min(worth)[2], taker

    def _may_join(self, place: Place, broker: int) -> bool:
        replicas = self.replicas[place]
        is_spread = self._spread(replicas) == self._rack_count
        return broker not in replicas and (
            is_spread or self._rack_of[broker] not in {self._rack_of[other] for other in replicas}
        )

    def _may_replace(self, place: Place, giver: int, taker: int) -> bool:
        replicas = self.replicas[place]
        if taker in replicas:
            return False
        if self._rack_of[giver] == self._rack_of[taker]:
            return True
        others = [broker for broker in replicas if broker != giver]
        return self._spread([*others, taker]) >= self._spread(replicas)

    def _spread(self, replicas: Iterable[int]) -> int:
        return len({self._rack_of[broker] for broker in replicas})

    def _load(self, broker: int) -> int:
        return len(self._on[broker])

    def _least(self) -> int:
        return min(map(self._load, self._brokers))

    def _add(self, place: Place, broker: int) -> None:
        self.replicas[place].append(broker)
        self._on[broker].add(place)
        self._of_topic[broker, place.topic] += 1

    def _drop(self, place: Place, broker: int) -> None:
        self.replicas[place].remove(broker)
        self._on[broker].remove(place)
        self._of_topic[broker, place.topic] -= 1

    def _move(self, place: Place, giver: int, taker: int) -> None:
        position = self.replicas[place].index(giver)
        self._drop(place, giver)
        self._add(place, taker)
        self.replicas[place].insert(position, self.replicas[place].pop())

    # leaders

    def level_leaders(self) -> None:
        """Change the order of replicas until the brokers are first in equally many, or nothing helps."""
        led: dict[int, set[Place]] = {broker: set() for broker in self._brokers}
        for place, replicas in self.replicas.items():
            if replicas:
                led[replicas[0]].add(place)

        def steps(leader: int) -> Iterator[tuple[Place, int]]:
            best: dict[int, Place] = {}
            for place in led[leader] - self._stays:
                for broker in self.replicas[place][1:]:
                    best[broker] = min(place, best.get(broker, place))
            return ((best[broker], broker) for broker in sorted(best))

        stuck: set[int] = set()
        while givers := [b for b in self._brokers if b not in stuck and len(led[b]) >= min(map(len, led.values())) + 2]:
            giver = max(givers, key=lambda b: (len(led[b]), -b))
            enough = len(led[giver]) - 2
            chain = _chain(giver, {b for b in self._brokers if len(led[b]) <= enough}, steps)
            if not chain:
                stuck.add(giver)
            for place, old, new in chain:
                self.replicas[place].remove(new)
                self.replicas[place].insert(0, new)
                led[old].remove(place)
                led[new].add(place)


def _chain(
    start: int, ends: Set[int], steps: Callable[[int], Iterable[tuple[Place, int]]]
) -> list[tuple[Place, int, int]]:
    """The shortest way from a broker to one of several, as (place, from, to); empty if there is none."""
    came: dict[int, tuple[Place, int, int]] = {}
    waiting = deque([start])
    while waiting:
        broker = waiting.popleft()
        for place, target in steps(broker):
            if target == start or target in came:
                continue
            came[target] = (place, broker, target)
            if target in ends:
                return _way(came, start, target)
            waiting.append(target)
    return []


def _way(came: Mapping[int, tuple[Place, int, int]], start: int, end: int) -> list[tuple[Place, int, int]]:
    way: list[tuple[Place, int, int]] = []
    while end != start:
        way.insert(0, came[end])
        end = came[end][1]
    return way
