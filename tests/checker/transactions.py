"""Rules about transactions: nobody who reads only what is committed sees anything else, and each has one outcome."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.anomaly import Anomaly, Name, short
from tests.checker.commits import Commits
from tests.checker.facts import Facts, Read, Transaction
from tests.checker.history import Outcome, Sent, TransactionEnded


def aborted_reads(facts: Facts) -> Iterator[Anomaly]:
    """What has certainly failed or been aborted is not read."""
    for read, offset, value in _records(facts):
        transaction = _committed_only(facts, read, value)
        if value in facts.definite_failures:
            end, what = facts.definite_failures[value], "which was refused"
        elif transaction is not None and transaction.outcome is Outcome.ABORTED:
            end, what = transaction.ends[-1], f"of {facts.sent(value).transaction}, which was aborted"
        else:
            continue
        evidence = facts.evidence((facts.sends[value].at, end, read.at), value)
        yield Anomaly(Name.ABORTED_READ, str(read.partition), f"{short(value)} at {offset}, {what}", evidence)


def precommitted_reads(facts: Facts) -> Iterator[Anomaly]:
    """What is not committed yet is not read, not even by its own producer."""
    for read, offset, value in _records(facts):
        transaction = _committed_only(facts, read, value)
        if transaction is None or transaction.outcome is Outcome.ABORTED:
            continue
        if transaction.commit_asked is None or transaction.commit_asked > read.at:
            what = f"{short(value)} at {offset}, of {facts.sent(value).transaction}, which nobody had asked to commit"
            evidence = facts.evidence((facts.sends[value].at, read.at), value)
            yield Anomaly(Name.PRECOMMITTED_READ, str(read.partition), what, evidence)


def double_processing(facts: Facts) -> Iterator[Anomaly]:
    """Of each source, as often as it was sent, one value is made in a topic, and no more of them are committed."""
    made: dict[tuple[bytes, str], dict[bytes, int]] = {}
    for log in facts.logs():
        for value, index in log.sightings.values() if facts.is_last(log) else ():
            sent = facts.sent(value)
            if not sent.sources or not sent.transaction or not facts.is_visible(value):
                continue
            source = sent.sources[sent.values.index(value)]
            values = made.setdefault((source, log.partition.topic), {})
            values.setdefault(value, index)
            if len(values) > 1 + facts.sent_again_values[source]:
                first, first_index = next(iter(values.items()))
                what = f"both {short(first)} and {short(value)} were made of {short(source)}"
                evidence = facts.evidence((*facts.origin(first, value), first_index, index), first, value)
                yield Anomaly(Name.DOUBLE_PROCESSING, log.partition.topic, what, evidence)


def unprocessed(facts: Facts) -> Iterator[Anomaly]:
    """Transactions that make values of others, and commit how far they have come, leave out none."""
    makers: dict[str, int] = {}
    used: set[bytes] = set()
    for index, sent in facts.of(Sent):
        if sent.sources and sent.transaction and facts.transactions[sent.transaction].outcome is not Outcome.ABORTED:
            makers.setdefault(sent.transaction, index)
            used.update(sent.sources)
    for (_, partition), attempts in Commits(facts).attempts.items():
        done = [each for each in attempts if each.transaction in makers and each.outcome is Outcome.COMMITTED]
        furthest = max(done, key=lambda each: each.offset, default=None)
        if furthest is None:
            continue
        for offset, (value, first) in facts.last_log(partition).between(0, furthest.offset):
            if value not in used and facts.is_visible(value):
                what = f"{short(value)} at {offset} is behind the committed offset {furthest.offset}"
                indexes = (*facts.origin(value), first, makers[furthest.transaction], *furthest.events)
                yield Anomaly(Name.UNPROCESSED, str(partition), what, facts.evidence(indexes, value))


def two_outcomes(facts: Facts) -> Iterator[Anomaly]:
    """A transaction is committed or aborted, whoever asks."""
    for name, transaction in facts.transactions.items():
        ends = {event.outcome: i for i in transaction.ends if isinstance(event := facts.events[i][1], TransactionEnded)}
        if len(ends) > 1:
            yield Anomaly(Name.TWO_OUTCOMES, name, "both committed and aborted", facts.evidence(ends.values()))


def _records(facts: Facts) -> Iterator[tuple[Read, int, bytes]]:
    """What was read, if anybody has sent it."""
    for read in facts.reads:
        for offset, value in read.records:
            if value in facts.sends:
                yield read, offset, value


def _committed_only(facts: Facts, read: Read, value: bytes) -> Transaction | None:
    """The value's transaction, if the reader may see it only when that is committed."""
    return facts.transaction_of(value) if read.read_committed else None
