"""Rules about what groups commit: a committed offset is not lost, and members, who go on where the group is, do not
take it back.

What a group has committed is a register. Whoever asks is told the offset of a commit that may have been carried out
and that no other one, begun after its end and ended before the question, has replaced. A commit of which nobody knows
whether it was carried out may be so as long as a request can be late. One that was sent twice may be carried out once
more: by Kafka's protocol a coordinator cannot tell that the same member has asked for something else since.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tests.checker.anomaly import Anomaly, Name
from tests.checker.facts import Facts
from tests.checker.history import (
    NO_OFFSET,
    Assigned,
    CommitFailed,
    CommitsAsked,
    CommitsTold,
    Committed,
    Committing,
    Event,
    Offsets,
    Outcome,
    PowerCut,
    Revoked,
    TopicPartition,
    TransactionEnded,
    UncleanElection,
)

_EVENTS = (Assigned, Revoked, Committing, Committed, CommitFailed, TransactionEnded, PowerCut, UncleanElection)
OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(slots=True)
class Attempt:
    begin: int
    offset: int
    transaction: str
    latest: int
    """The event at which it was answered, or before which it was carried out, if it was at all."""
    is_answered: bool = False
    outcome: Outcome = Outcome.UNKNOWN
    is_doubtful: bool = False
    """A fault may have undone it, or its consumer had lost the partition: a group does not ask whose an offset is."""

    @property
    def events(self) -> tuple[int, ...]:
        return (self.begin, self.latest) if self.is_answered else (self.begin,)

    def settle(self, end: int, outcome: Outcome) -> None:
        if outcome is Outcome.ABORTED or (outcome is Outcome.COMMITTED and not self.is_doubtful):
            self.latest = end
            self.is_answered = True
            self.outcome = outcome

    def doubt(self) -> None:
        self.is_doubtful = True
        if self.outcome is Outcome.COMMITTED:
            self.outcome = Outcome.UNKNOWN


class Commits:
    """All commits that were tried, by group and partition."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.attempts: dict[tuple[str, TopicPartition], list[Attempt]] = {}
        self._owned: dict[str, set[TopicPartition]] = {}
        """By consumers, as far as they tell."""
        self._open: dict[tuple[str, str, Offsets], list[tuple[list[Attempt], Attempt]]] = {}
        """With the list of all attempts that each is one of."""
        self._in_transactions: dict[str, dict[tuple[str, TopicPartition], Attempt]] = {}
        for index, event in facts.of(*_EVENTS):
            self._take(index, event)
        for name, attempts in self._in_transactions.items():
            transaction = facts.transactions.get(name)
            if transaction is not None and transaction.is_committed and transaction.first_seen is not None:
                for attempt in attempts.values():
                    if not attempt.is_answered:
                        attempt.settle(transaction.first_seen, Outcome.COMMITTED)

    def possible(self, group: str, partition: TopicPartition, asked: int, told: int) -> set[int]:
        """What somebody may be told who asks and is answered at these events."""
        tried = [each for each in self.attempts.get((group, partition), ()) if each.begin < told]
        begun = max((each.begin for each in _done(tried, asked)), default=None)
        offsets = {
            each.offset
            for each in tried
            if each.outcome is not Outcome.ABORTED and (begun is None or each.latest > begun)
        }
        return offsets | {NO_OFFSET} if begun is None else offsets

    def evidence(self, group: str, partition: TopicPartition, before: int) -> tuple[int, ...]:
        """The events of the last commit that was certainly carried out before an event."""
        done = _done(self.attempts.get((group, partition), ()), before)
        last = max(done, key=lambda each: each.begin, default=None)
        return () if last is None else last.events

    def _take(self, index: int, event: Event) -> None:
        match event:
            case Committing():
                latest = self._after(index, self._facts.expectations.late_s)
                for partition, offset in event.offsets:
                    has_lost_it = partition not in self._owned.get(event.consumer, (partition,))
                    attempt = Attempt(index, offset, event.transaction, latest, is_doubtful=has_lost_it)
                    self._begin(event, (event.group, partition), attempt)
            case Assigned():
                self._owned.setdefault(event.consumer, set()).update(partition for partition, _ in event.positions)
            case Revoked():
                self._owned.setdefault(event.consumer, set()).difference_update(event.partitions)
            case Committed():
                self._end(event, index, Outcome.COMMITTED)
            case CommitFailed():
                self._end(event, index, Outcome.ABORTED if event.definite else Outcome.UNKNOWN)
            case TransactionEnded():
                for attempt in self._in_transactions.get(event.transaction, {}).values():
                    attempt.settle(index, event.outcome)
            case PowerCut() if OFFSETS_TOPIC not in self._facts.expectations.synced_topics:
                self._doubt(None)
            case UncleanElection(partition=partition):
                self._doubt(None if partition.topic == OFFSETS_TOPIC else partition)
            case _:
                pass

    def _begin(self, event: Committing, key: tuple[str, TopicPartition], attempt: Attempt) -> None:
        if event.transaction:
            of_transaction = self._in_transactions.setdefault(event.transaction, {})
            if (replaced := of_transaction.get(key)) is not None:
                self.attempts[key].remove(replaced)
            of_transaction[key] = attempt
        attempts = self.attempts.setdefault(key, [])
        attempts.append(attempt)
        if not event.transaction:
            self._open.setdefault((event.consumer, event.group, event.offsets), []).append((attempts, attempt))

    def _end(self, event: Committed | CommitFailed, index: int, outcome: Outcome) -> None:
        events = self._facts.events
        for attempts, attempt in self._open.pop((event.consumer, event.group, event.offsets), ()):
            if events[index][0] - events[attempt.begin][0] > self._facts.expectations.prompt_s:
                attempts.append(replace(attempt))  # as it was first sent: of that nobody has heard
            if outcome is Outcome.UNKNOWN:
                attempt.latest = min(attempt.latest, self._after(index, self._facts.expectations.lag_s))
            attempt.settle(index, outcome)

    def _after(self, index: int, seconds: float) -> int:
        """The first event that is so much later than this one."""
        time = self._facts.events[index][0] + seconds
        return bisect_left(self._facts.events, time, key=lambda moment: moment[0])

    def _doubt(self, partition: TopicPartition | None) -> None:
        """What was committed, for this partition or for all of them, may be lost or of no use."""
        for (_, of_partition), attempts in self.attempts.items():
            if partition in (None, of_partition):
                for attempt in attempts:
                    attempt.doubt()


def _done(attempts: Iterable[Attempt], before: int) -> Iterator[Attempt]:
    return (each for each in attempts if each.outcome is Outcome.COMMITTED and each.latest < before)


def lost_commits(facts: Facts) -> Iterator[Anomaly]:
    """Whoever asks a group is told what it has committed."""
    commits = Commits(facts)
    asked: dict[tuple[str, str], int] = {}
    for index, event in facts.of(CommitsAsked, CommitsTold):
        if isinstance(event, CommitsAsked):
            asked[event.asker, event.group] = index
        elif isinstance(event, CommitsTold):
            question = asked.get((event.asker, event.group), 0)
            for partition, offset in event.offsets:
                possible = commits.possible(event.group, partition, question, index)
                if offset not in possible:
                    what = f"{event.group} is at {offset}, it has committed {_either(possible)}"
                    evidence = facts.evidence((*commits.evidence(event.group, partition, question), question, index))
                    yield Anomaly(Name.LOST_COMMIT, str(partition), what, evidence)


def backward_commits(facts: Facts) -> Iterator[Anomaly]:
    """No commit is taken that goes back behind one that was done before it began, or where members count does not go
    on from it, unless a late one may have come between, from which they then rightly go on."""
    for (group, partition), attempts in Commits(facts).attempts.items():
        step = 1 if group in facts.expectations.counting_groups else 0
        done = [each for each in attempts if each.outcome is Outcome.COMMITTED]
        by_end = deque(sorted(done, key=lambda each: each.latest))
        highest: Attempt | None = None
        for attempt in done:
            while by_end[0].latest < attempt.begin:
                ended = by_end.popleft()
                highest = ended if highest is None or ended.offset > highest.offset else highest
            if highest is None or attempt.offset >= highest.offset + step:
                continue
            if _may_follow(attempts, highest, attempt, step):
                continue
            is_same = attempt.offset == highest.offset
            what = f"took {attempt.offset} twice" if is_same else f"went back from {highest.offset} to {attempt.offset}"
            evidence = facts.evidence((*highest.events, *attempt.events))
            yield Anomaly(Name.BACKWARD_COMMIT, str(partition), f"{group} {what}", evidence)


def _may_follow(attempts: list[Attempt], highest: Attempt, attempt: Attempt, step: int) -> bool:
    """Whether a commit of which nobody knows may have come between these two."""
    unknown = (each for each in attempts if each.outcome is Outcome.UNKNOWN and each.begin < attempt.begin)
    return any(each.offset + step <= attempt.offset and each.latest > highest.begin for each in unknown)


def _either(offsets: set[int]) -> str:
    return " or ".join("nothing" if offset == NO_OFFSET else str(offset) for offset in sorted(offsets))
