"""Records that are in a log twice since their producer has raised its epoch and sent them again.

A broker knows what it has by producer id, epoch and sequence, so what comes under another epoch is new to it. As soon
as one partition has a gap in its sequences, librdkafka raises its epoch for all of them, and begins each anew with what
is not acknowledged there, be it in the log or not (tests/interop/test_librdkafka_epochs.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from barnabas.records.batch import BatchHeader, headers
from tests.checker.history import FinalLog, SentAgain

Identity = tuple[int, int]
"""A producer's id and epoch."""


def sent_again(log: FinalLog, segments: Iterable[Path]) -> SentAgain | None:
    """The copies that came under epochs of their own, if there are any."""
    copies = _copies(log)
    if not copies:
        return None
    wanted = {offset for offsets in copies.values() for offset in offsets}
    written_by = {
        offset: (header.producer_id, header.producer_epoch)
        for header in _headers(segments)
        for offset in wanted.intersection(range(header.base_offset, header.next_offset))
    }
    resent: list[int] = []
    for offsets in copies.values():
        known: set[Identity] = set()
        for offset in offsets:
            identity = written_by[offset]
            if known and identity not in known:
                resent.append(offset)
            known.add(identity)
    return SentAgain(log.partition, tuple(sorted(resent))) if resent else None


def _copies(log: FinalLog) -> dict[bytes, list[int]]:
    """The offsets of values that are there more than once."""
    places: dict[bytes, list[int]] = {}
    for offset, value in log.records:
        places.setdefault(value, []).append(offset)
    return {value: offsets for value, offsets in places.items() if len(offsets) > 1}


def _headers(segments: Iterable[Path]) -> Iterator[BatchHeader]:
    for segment in segments:
        for _, header in headers(memoryview(segment.read_bytes())):
            yield header
