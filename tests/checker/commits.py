"""Rules about what groups commit: a committed offset is not lost, and members, who go on where the group is, do not
take it back.

What a group has committed is a register. Whoever asks is told the offset of a commit that may have been carried out
and that no other one, begun after its end and ended before the question, has replaced. A commit of which nobody knows
whether it was carried out may be at any time after it was tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.checker.anomaly import Anomaly, Name
from tests.checker.facts import Facts
from tests.checker.history import (
    NO_OFFSET,
    CommitFailed,
    CommitsAsked,
    CommitsTold,
    Committed,
    Committing,
    Event,
    Offsets,
    Outcome,
    PowerCut,
    TopicPartition,
    TransactionEnded,
    UncleanElection,
)

OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(slots=True)
class Attempt:
    begin: int
    offset: int
    end: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    is_doubtful: bool = False
    """It may have been undone by a fault that excuses that."""

    def settle(self, end: int, outcome: Outcome) -> None:
        self.end = end
        if not self.is_doubtful:
            self.outcome = outcome

    def doubt(self) -> None:
        self.is_doubtful = True
        if self.outcome is Outcome.COMMITTED:
            self.outcome = Outcome.UNKNOWN

    def is_done_before(self, index: int) -> bool:
        return self.outcome is Outcome.COMMITTED and self.end is not None and self.end < index


class Commits:
    """All commits that were tried, by group and partition."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.attempts: dict[tuple[str, TopicPartition], list[Attempt]] = {}
        self._open: dict[tuple[str, str, Offsets], list[Attempt]] = {}
        self._in_transactions: dict[str, dict[tuple[str, TopicPartition], Attempt]] = {}
        for index, event in facts.of(Committing, Committed, CommitFailed, TransactionEnded, PowerCut, UncleanElection):
            self._take(index, event)
        for name, attempts in self._in_transactions.items():
            transaction = facts.transactions.get(name)
            if transaction is not None and transaction.is_committed and transaction.first_seen is not None:
                for attempt in attempts.values():
                    if attempt.end is None:
                        attempt.settle(transaction.first_seen, Outcome.COMMITTED)

    def possible(self, group: str, partition: TopicPartition, asked: int, told: int) -> set[int]:
        """What somebody may be told who asks and is answered at these events."""
        attempts = [each for each in self.attempts.get((group, partition), ()) if each.begin < told]
        done = [each.begin for each in attempts if each.is_done_before(asked)]
        if not done:
            return {NO_OFFSET, *(each.offset for each in attempts if each.outcome is not Outcome.ABORTED)}
        return {
            each.offset
            for each in attempts
            if each.outcome is not Outcome.ABORTED and not each.is_done_before(max(done))
        }

    def evidence(self, group: str, partition: TopicPartition, before: int) -> list[int]:
        """The events of the last commit that was certainly carried out before an event."""
        done = [each for each in self.attempts.get((group, partition), ()) if each.is_done_before(before)]
        last = max(done, key=lambda each: each.begin, default=None)
        return [] if last is None or last.end is None else [last.begin, last.end]

    def _take(self, index: int, event: Event) -> None:
        match event:
            case Committing():
                for partition, offset in event.offsets:
                    self._begin(event, (event.group, partition), Attempt(index, offset))
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
        else:
            self._open.setdefault((event.consumer, event.group, event.offsets), []).append(attempt)
        self.attempts.setdefault(key, []).append(attempt)

    def _end(self, event: Committed | CommitFailed, index: int, outcome: Outcome) -> None:
        for attempt in self._open.pop((event.consumer, event.group, event.offsets), ()):
            attempt.settle(index, outcome)

    def _doubt(self, partition: TopicPartition | None) -> None:
        """What was committed, for this partition or for all of them, may be lost or of no use."""
        for (_, of_partition), attempts in self.attempts.items():
            if partition in (None, of_partition):
                for attempt in attempts:
                    attempt.doubt()


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
    """No commit is taken that goes back behind one that was done before it; but after a commit of which nobody knows
    when it was carried out, members may rightly go on from there."""
    for (group, partition), attempts in Commits(facts).attempts.items():
        by_end = iter(sorted((each for each in attempts if each.is_done_before(len(facts.events))), key=_end))
        waiting = next(by_end, None)
        highest: Attempt | None = None
        lowest_unknown: int | None = None
        for attempt in attempts:
            while waiting is not None and waiting.is_done_before(attempt.begin):
                highest = max((each for each in (highest, waiting) if each), key=lambda each: each.offset)
                waiting = next(by_end, None)
            if attempt.outcome is Outcome.UNKNOWN:
                lowest_unknown = min(attempt.offset, attempt.offset if lowest_unknown is None else lowest_unknown)
            is_excused = lowest_unknown is not None and lowest_unknown <= attempt.offset
            if attempt.outcome is Outcome.COMMITTED and highest and attempt.offset < highest.offset and not is_excused:
                what = f"{group} went back from {highest.offset} to {attempt.offset}"
                evidence = facts.evidence((highest.begin, _end(highest), attempt.begin, _end(attempt)))
                yield Anomaly(Name.BACKWARD_COMMIT, str(partition), what, evidence)


def _end(attempt: Attempt) -> int:
    assert attempt.end is not None
    return attempt.end


def _either(offsets: set[int]) -> str:
    return " or ".join("nothing" if offset == NO_OFFSET else str(offset) for offset in sorted(offsets))
