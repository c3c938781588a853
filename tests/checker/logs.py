"""Rules about one log per partition: what was promised is in it, once, in its order, at its offset."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.anomaly import Anomaly, Name, short
from tests.checker.facts import Facts, Log
from tests.checker.history import FinalLog, TopicPartition, Trimmed, Trimming, UncleanElection


def inconsistent_offsets(facts: Facts) -> Iterator[Anomaly]:
    """An offset has one value."""
    for log in facts.logs():
        for offset, later in log.conflicts:
            first = log.sightings[offset]
            values = (first.value, later.value)
            what = f"offset {offset} reused: was {short(first.value)}, is {short(later.value)}"
            indexes = (*(facts.sends[value].at for value in values), first.at, later.at)
            yield Anomaly(Name.INCONSISTENT_OFFSETS, str(log.partition), what, facts.evidence(indexes, *values))


def phantoms(facts: Facts) -> Iterator[Anomaly]:
    """A value that is in a partition was sent there before."""
    for partition, offset, (value, index) in facts.phantoms:
        what = f"{short(value)} at {offset}, which was never sent there"
        yield Anomaly(Name.PHANTOM, str(partition), what, (facts.moment(index, value),))


def duplicates(facts: Facts) -> Iterator[Anomaly]:
    """What was sent once is there once."""
    for log in facts.logs():
        places: dict[bytes, int] = {}
        for offset in log.offsets:
            value, index = log.sightings[offset]
            first = places.setdefault(value, offset)
            if first == offset or facts.is_sent_again(log.partition, offset):
                continue
            if facts.is_ordered(facts.sent(value)):
                what = f"{short(value)} is there twice, at {first} and at {offset}"
                evidence = facts.evidence((facts.sends[value].at, log.sightings[first].at, index), value)
                yield Anomaly(Name.DUPLICATE, str(log.partition), what, evidence)


def nonmonotonic_sends(facts: Facts) -> Iterator[Anomaly]:
    """What a producer sends to a partition is there in the order in which it was sent."""
    for log in facts.logs():
        latest: dict[str, tuple[int, int]] = {}
        seen: set[bytes] = set()  # the second of two is a duplicate
        for offset in log.offsets:
            value = log.sightings[offset].value
            sent, number = facts.sent(value), facts.sends[value].number
            before_number, before_offset = latest.get(sent.producer, (-1, -1))
            if number > before_number:
                latest[sent.producer] = (number, offset)
            elif value not in seen and facts.is_ordered(sent):
                yield _nonmonotonic_send(facts, log, before_offset, offset)
            seen.add(value)


def _nonmonotonic_send(facts: Facts, log: Log, before_offset: int, offset: int) -> Anomaly:
    before, after = log.sightings[before_offset], log.sightings[offset]
    values = (before.value, after.value)
    transactions = {facts.sent(value).transaction for value in values}
    is_internal = len(transactions) == 1 and "" not in transactions
    indexes = (*(facts.sends[value].at for value in values), before.at, after.at)
    return Anomaly(
        Name.INTERNAL_NONMONOTONIC_SEND if is_internal else Name.EXTERNAL_NONMONOTONIC_SEND,
        str(log.partition),
        f"{short(after.value)} was sent before {short(before.value)}, but is at {offset}, after {before_offset}",
        facts.evidence(indexes, *values),
    )


def lost_writes(facts: Facts) -> Iterator[Anomaly]:
    """What was acknowledged or read, and everybody may see, is there at the end."""
    for log in facts.logs():
        for final_index, final in _finals(facts, log):
            places = dict(final.records)
            there = set(places.values())
            for offset, (value, index) in (*((each, log.sightings[each]) for each in log.offsets), *log.conflicts):
                if offset >= final.log_start_offset and value not in there and facts.is_visible(value):
                    neighbours = [places[each] for each in range(offset - 1, offset + 2) if each in places]
                    evidence = facts.evidence((*facts.origin(value), index), value)
                    found = facts.moment(final_index, value, *neighbours)
                    what = f"lost: {short(value)} at {offset}"
                    yield Anomaly(Name.LOST_WRITE, str(log.partition), what, (*evidence, found))


def lost_writes_without_offset(facts: Facts) -> Iterator[Anomaly]:
    """Where an offset was not told. Of a log whose beginning was deleted nobody knows whether it was there."""
    for log in facts.logs():
        for final_index, final in _finals(facts, log):
            there = {value for _, value in final.records}
            for value, index in log.untold.items() if final.log_start_offset == 0 else ():
                if value not in there and facts.is_visible(value):
                    evidence = facts.evidence((*facts.origin(value), index, final_index), value)
                    what = f"lost: {short(value)}, acknowledged without an offset"
                    yield Anomaly(Name.LOST_WRITE, str(log.partition), what, evidence)


def gaps(facts: Facts) -> Iterator[Anomaly]:
    """Where no transaction writes, every offset from the log's beginning to its end has a record."""
    for log in facts.logs():
        if log.partition in facts.transactional_partitions:
            continue
        for final_index, final in _finals(facts, log):
            for due, (offset, value) in enumerate(final.records, final.log_start_offset):
                if offset != due:
                    what = f"at the end: offset {offset} where {due} was due"
                    yield Anomaly(Name.GAP, str(log.partition), what, (facts.moment(final_index, value),))
                    break


def trims(facts: Facts) -> Iterator[Anomaly]:
    """Records go from the beginning of a log only when somebody or retention deletes them, and do not come back, unless
    with a leader that was elected uncleanly and had not heard of it."""
    for index, event in facts.of(FinalLog):
        start, partition = event.log_start_offset, str(event.partition)
        final = facts.moment(index, *(value for _, value in event.records[:1]))
        low_watermark, trimmed_at = max(_trimmed(facts, event.partition), default=(0, index))
        if start < low_watermark:
            what = f"deleted up to {low_watermark}, but begins at {start}"
            yield Anomaly(Name.UNDONE_TRIM, partition, what, (facts.moment(trimmed_at), final))
        is_expiring = event.partition.topic in facts.expectations.expiring_topics
        if start > facts.trim_bounds.get(event.partition, 0) and not is_expiring:
            yield Anomaly(Name.UNASKED_TRIM, partition, f"begins at {start}, where nobody had it begin", (final,))


def _trimmed(facts: Facts, partition: TopicPartition) -> Iterator[tuple[int, int]]:
    """What was deleted in the partition's last life, and which event says so."""
    elected = max((at for at, each in facts.of(UncleanElection) if each.partition == partition), default=-1)
    asked = [at for at, each in facts.of(Trimming) if each.partition == partition]
    for at, event in facts.of(Trimmed):
        begun = max((each for each in asked if each < at), default=at)
        if event.partition == partition and begun > elected:
            yield event.low_watermark, at


def _finals(facts: Facts, log: Log) -> Iterator[tuple[int, FinalLog]]:
    for index in log.finals if facts.is_last(log) else ():
        event = facts.events[index][1]
        assert isinstance(event, FinalLog)
        yield index, event
