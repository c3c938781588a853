"""Compaction against a model: random keys, tombstones, transactions, codecs, full maps, restarts and lost snapshots."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from barnabas.records import codec, column_codec, compaction_codec, engine
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.records.control import ControlType, EndMarker
from barnabas.records.record import Record
from barnabas.storage.log import Log
from barnabas.storage.recovery import LogState
from tests.simulation.simulated_disk import SimulatedDisk
from tests.unit.storage.cleaner_helpers import COMPACTED, compact, job_of
from tests.unit.storage.storage_helpers import CLEAN, NOW_MS, new_log, read_all, reopen

DIRECTORY = "/data/topic-0"
DELETE_RETENTION_MS = 5000
CONFIG = {**COMPACTED, "delete_retention_ms": DELETE_RETENTION_MS}


@dataclass
class ModelBatch:
    records: list[Record]
    producer_id: int = -1
    is_aborted: bool = False
    horizon_ms: int | None = None


@dataclass
class Model:
    """What a log holds, as simply as it can be told."""

    batches: list[ModelBatch] = field(default_factory=list)

    def compact(self, first_dirty: int, map_end: int, end: int, now_ms: int) -> None:
        """`map_end` is where the map was full; all batches below `end`, the end of its segment, are looked at."""
        newest: dict[bytes, int] = {}
        for batch in self.batches:
            if not batch.is_aborted:
                for record in batch.records:
                    if first_dirty <= record.offset < map_end:
                        newest[record.key or b""] = record.offset
        for batch in self.batches:
            if not batch.records or batch.records[0].offset >= end:
                continue
            if batch.is_aborted:
                batch.records = []
            expired = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
            batch.records = [
                record
                for record in batch.records
                if record.offset >= map_end
                or (record.offset >= newest.get(record.key or b"", -1) and (record.value is not None or not expired))
            ]
            if batch.horizon_ms is None and any(record.value is None for record in batch.records):
                batch.horizon_ms = now_ms + DELETE_RETENTION_MS

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]


class World:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.disk = SimulatedDisk(rng)
        self.log = new_log(DIRECTORY, self.disk, **CONFIG)
        self.model = Model()
        self.now_ms = NOW_MS
        self.sequences: dict[int, int] = {}
        self.open_transactions: dict[int, list[ModelBatch]] = {}

    def append(self) -> None:
        rng, log = self.rng, self.log
        self.now_ms += rng.randrange(300)
        producer_id = rng.choice([-1, 1, 2, 3, 4])
        transactional = producer_id >= 3
        builder = BatchBuilder(rng.choice(list(Compression)), transactional=transactional)
        if producer_id >= 0:
            builder.producer_id, builder.producer_epoch = producer_id, 0
            builder.base_sequence = self.sequences.get(producer_id, 0)
        records: list[Record] = []
        for _ in range(rng.randrange(1, 6)):
            key = b"key %d" % min(rng.randrange(30), rng.randrange(30))
            value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(80))
            timestamp = self.now_ms + rng.randrange(-50, 50)
            headers = [("h", b"x")] if rng.random() < 0.2 else []
            builder.append(key, value, headers, timestamp)
            offset = log.log_end_offset + len(records)
            records.append(Record(offset, timestamp, key, value, tuple(headers)))
        self.sequences[producer_id] = builder.base_sequence + len(builder)
        log.append_as_leader(memoryview(builder.build()), 0, self.now_ms)
        batch = ModelBatch(records, producer_id)
        self.model.batches.append(batch)
        if transactional:
            self.open_transactions.setdefault(producer_id, []).append(batch)

    def end_transaction(self) -> None:
        if not self.open_transactions:
            return
        producer_id = self.rng.choice(sorted(self.open_transactions))
        batches = self.open_transactions.pop(producer_id)
        outcome = self.rng.choice(list(ControlType))
        self.log.append_end_marker(EndMarker(outcome, 1), producer_id, 0, 0, self.now_ms)
        for batch in batches:
            batch.is_aborted = outcome is ControlType.ABORT

    def compact(self) -> None:
        log = self.log
        log.set_high_watermark(log.log_end_offset)
        self.now_ms += self.rng.randrange(4000)
        buffer_bytes = self.rng.choice([1 << 20, 24 * 12])
        job = job_of(log, self.now_ms)
        if not job.segments or job.segments[-1].end_offset <= job.first_dirty_offset:
            return
        map_end = compact(log, self.now_ms, log_cleaner_dedupe_buffer_size=buffer_bytes)
        assert map_end > job.first_dirty_offset
        end = next(file.end_offset for file in job.segments if file.end_offset >= map_end)
        self.model.compact(job.first_dirty_offset, map_end, end, self.now_ms)

    def restart(self) -> None:
        log, rng = self.log, self.rng
        end_offset, first_dirty = log.log_end_offset, log.first_dirty_offset
        log.set_high_watermark(end_offset)
        producers, stable = _producers(log), log.last_stable_offset
        how = rng.random()
        if how < 0.5:
            log.close()
            state = LogState(CLEAN.is_clean, first_dirty_offset=first_dirty)
        else:
            state = LogState(False, log.recovery_point, first_dirty_offset=first_dirty)
        if how > 0.8:  # the worst: nothing is left but the log
            state = LogState()
            for name in self.disk.list_dir(DIRECTORY):
                if not name.endswith(".log"):
                    self.disk.remove(f"{DIRECTORY}/{name}")
        self.log, recovery = reopen(DIRECTORY, state, self.disk, **CONFIG)
        assert recovery.dropped_bytes == 0
        assert self.log.log_end_offset == end_offset
        self.log.set_high_watermark(end_offset)
        assert (_producers(self.log), self.log.last_stable_offset) == (producers, stable)


def _producers(log: Log) -> dict[int, object]:
    """Without times: that of a batch is the greatest among the records that are left."""
    return {
        entry.producer_id: (entry.epoch, [(batch.base_sequence, *batch[1:4]) for batch in entry.batches])
        for entry in log.producers.entries.values()
    }


@pytest.fixture(params=["compiled", "uncompiled"])
def _either_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "uncompiled":
        for name, module in (("codec", codec), ("column_codec", column_codec), ("compaction_codec", compaction_codec)):
            monkeypatch.setattr(engine, name, module)


@pytest.mark.usefixtures("_either_engine")
@pytest.mark.parametrize("seed", range(40))
def test_what_is_left_is_what_the_model_says(seed: int) -> None:
    rng = random.Random(seed)
    world = World(rng)
    for _ in range(rng.randrange(2, 7)):
        for _ in range(rng.randrange(5, 60)):
            world.append()
            if rng.random() < 0.25:
                world.end_transaction()
        for step in rng.sample([world.compact, world.compact, world.restart], 3):
            step()
            assert read_all(world.log) == world.model.records()
            assert world.log.log_end_offset >= max(record.offset for record in world.model.records()) + 1
    assert len(world.model.records()) < world.log.log_end_offset
