"""A shard's driver: it loads, answers behind the watermark, keeps time, and tells those who wait when it is over."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.image import Partition as Registration
from barnabas.coordinator.outcome import CoordinatorRecord, Outcome
from barnabas.core.errors import ErrorCode
from barnabas.records.batch import headers
from barnabas.records.control import ControlType, EndMarker
from tests.simulation.virtual_loop import VirtualClock, VirtualLoop
from tests.unit.broker.shards import (
    ME,
    OTHER,
    POISON,
    PRODUCER,
    HeldExecutor,
    Stage,
    held,
    outcome_of,
    read,
    refuse,
    run,
    until,
    write,
)
from tests.unit.storage.storage_helpers import NOW_MS, append, batch, read_all

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
GONE = ErrorCode.NOT_COORDINATOR


# replies


def test_a_reply_leaves_when_the_watermark_has_passed_its_records(tmp_path: Path) -> None:
    async def story() -> None:
        stage = held(tmp_path)
        driver = await stage.driver()
        reply = driver.execute(write(b"a"))
        await asyncio.sleep(0)
        assert not reply.done()
        assert stage.committed == []
        assert [record.key for record in read_all(stage.log)] == [b"a"]
        stage.commit()
        assert await outcome_of(reply) == "wrote a"
        assert [outcome.records for outcome in stage.committed] == [[CoordinatorRecord(b"a", b"value")]]
        driver.close()

    run(story())


def test_a_read_waits_for_everything_that_was_written_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        stage = held(tmp_path)
        driver = await stage.driver()
        assert await outcome_of(driver.execute(read(b"a"))) is None
        written, seen = driver.execute(write(b"a")), driver.execute(read(b"a"))
        refused = driver.execute(refuse)
        await asyncio.sleep(0)
        assert not written.done()
        assert not seen.done()
        assert not refused.done()  # it too may stand on what is not committed
        stage.commit()
        assert (await outcome_of(written), await outcome_of(seen)) == ("wrote a", b"value")
        assert await outcome_of(refused) is ErrorCode.ILLEGAL_GENERATION
        driver.close()

    run(story())


def test_replies_leave_in_the_order_of_their_records(tmp_path: Path) -> None:
    async def story() -> None:
        stage = held(tmp_path)
        driver = await stage.driver()
        order: list[bytes] = []
        for key in (b"a", b"b", b"c"):
            driver.execute(write(key)).add_done_callback(lambda _, key=key: order.append(key))  # type: ignore[misc]
        stage.commit()
        await until(lambda: len(order) == 3)
        assert order == [b"a", b"b", b"c"]
        driver.close()

    run(story())


def test_a_reply_outlives_a_time_with_too_few_in_sync_replicas(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path, min_insync_replicas=2)
        stage.lead((ME, OTHER))
        driver = stage.drive()
        await until(lambda: driver.shard is not None)
        written = driver.execute(write(b"a"))
        for partition_epoch, isr in ((1, (ME,)), (2, (ME, OTHER))):
            stage.partition.update(Registration((ME, OTHER), isr, ME, stage.leader_epoch, partition_epoch))
            await asyncio.sleep(0)
            assert not written.done()
        stage.partition.follower_fetched(OTHER, 1, stage.log.log_end_offset, 0, 0, may_join=True)
        assert await outcome_of(written) == "wrote a"
        driver.close()

    run(story())


def test_a_new_leader_answers_nothing_until_what_it_has_read_is_committed(tmp_path: Path) -> None:
    async def story() -> None:
        stage = held(tmp_path)
        driver = await stage.driver()
        driver.execute(write(b"a")).cancel()
        stage.lose()
        driver.close()
        stage.lead()
        again = stage.drive()
        await asyncio.sleep(0.05)
        assert await outcome_of(again.execute(read(b"a"))) is LOADING
        stage.commit()
        await until(lambda: again.shard is not None)
        assert await outcome_of(again.execute(read(b"a"))) == b"value"
        again.close()

    run(story())


def test_a_log_that_cannot_be_read_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        driver = await stage.driver()
        await outcome_of(driver.execute(write(b"a")))
        driver.close()
        monkeypatch.setattr("barnabas.broker.coordinator_runtime._LOAD_PAUSE_SECONDS", 0.01)
        answers = iter([OSError("the disk hiccups")])

        def submit(function: Any, *arguments: Any) -> Any:
            for error in answers:
                raise error
            return HeldExecutor().submit(function, *arguments)

        monkeypatch.setattr(stage.executor, "submit", submit)
        stage.lead()
        again = stage.drive()
        await until(lambda: again.shard is not None)
        assert await outcome_of(again.execute(read(b"a"))) == b"value"
        again.close()

    run(story())


def test_a_reply_may_come_with_a_later_outcome(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        driver = await stage.driver()
        tokens: list[object] = []

        def wait(shard: object, token: object, now: object) -> Outcome:
            tokens.append(token)
            return Outcome()

        waiting = driver.execute(wait)
        await asyncio.sleep(0)
        assert not waiting.done()
        driver.tell(lambda shard, now: Outcome().reply(tokens[0], "at last"))
        assert await outcome_of(waiting) == "at last"
        driver.close()

    run(story())


def test_a_caller_that_went_away_is_no_trouble(tmp_path: Path) -> None:
    async def story() -> None:
        stage = held(tmp_path)
        driver = await stage.driver()
        gone, there = driver.execute(write(b"a")), driver.execute(write(b"b"))
        gone.cancel()
        stage.commit()
        assert await outcome_of(there) == "wrote b"
        driver.close()

    run(story())


# records


def test_the_records_of_a_producer_are_written_in_its_transaction(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        driver = await stage.driver()
        await outcome_of(driver.execute(write(b"plain")))
        await outcome_of(driver.execute(write(b"pending"), PRODUCER))
        driver.close()
        view = memoryview(stage.log.read(0, 1 << 20, stage.log.log_end_offset, True).read())
        assert [(each.is_transactional, each.producer_id, each.producer_epoch) for _, each in headers(view)] == [
            (False, -1, -1),
            (True, 7, 3),
        ]

    run(story())


def test_what_one_batch_cannot_hold_is_written_in_several(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path, max_message_bytes=500)
        driver = await stage.driver()
        records = [CoordinatorRecord(b"%d" % number, b"x" * 100) for number in range(10)]
        reply = driver.execute(lambda shard, token, now: Outcome(list(records)).reply(token, "all"))
        assert await outcome_of(reply) == "all"
        assert [(record.key, record.value) for record in read_all(stage.log)] == records
        view = memoryview(stage.log.read(0, 1 << 20, stage.log.log_end_offset, True).read())
        assert len(list(headers(view))) > 1
        driver.close()

    run(story())


# loading


def test_a_shard_is_the_fold_of_its_log(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        append(stage.log, b"old", key=b"a")
        append(stage.log, b"new", key=b"a")
        append(stage.log, b"pending", key=b"b", producer=(7, 3, 0), transactional=True)
        stage.log.append_end_marker(EndMarker(ControlType.COMMIT, 0), 7, 3, 0, NOW_MS)
        driver = await stage.driver()
        assert driver.shard is not None
        assert driver.shard.is_loaded
        assert driver.shard.notes == {b"a": b"new", b"b": b"pending"}
        assert driver.shard.replayed == [(0, b"a", -1), (1, b"a", -1), (2, b"b", 7)]
        assert driver.shard.ends == [(7, True)]
        driver.close()

    run(story())


def test_a_log_larger_than_one_read_is_loaded_whole(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        for number in range(24):
            append(stage.log, b"x" * 100_000, key=b"%d" % number)
        driver = await stage.driver()
        assert driver.shard is not None
        assert len(driver.shard.notes) == 24
        driver.close()

    run(story())


def test_who_comes_while_it_loads_is_told_to_come_again(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        append(stage.log, b"note", key=b"a")
        stage.executor.may_go_on.clear()
        stage.lead()
        driver = stage.drive()
        await asyncio.sleep(0)
        assert await outcome_of(driver.execute(read(b"a"))) is LOADING
        assert await outcome_of(driver.execute(write(b"b"))) is LOADING
        driver.tell(lambda shard, now: pytest.fail("there is no shard to tell"))
        stage.executor.may_go_on.set()
        await until(lambda: driver.shard)
        assert await outcome_of(driver.execute(read(b"a"))) == b"note"
        assert stage.log.log_end_offset == 1
        driver.close()

    run(story())


def test_a_corrupt_record_is_skipped_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        append(stage.log, b"before", key=b"a")
        append(stage.log, POISON, key=b"b")
        append(stage.log, b"after", key=b"c")
        with caplog.at_level(logging.ERROR):
            driver = await stage.driver()
        assert driver.shard is not None
        assert driver.shard.notes == {b"a": b"before", b"c": b"after"}
        driver.close()

    run(story())
    (error,) = caplog.records
    assert (error.msg, error.__dict__["fields"]["offset"]) == ("record skipped", 1)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_damaged_batch_is_left_to_a_leader_that_has_it_unless_it_is_no_damage_to_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    monkeypatch.setattr("barnabas.broker.coordinator_runtime._LOAD_PAUSE_SECONDS", 0.05)

    async def story() -> None:
        stage = Stage(tmp_path)
        append(stage.log, b"before", key=b"a")
        damaged_at = stage.log.segments.active.size + 70
        append(stage.log, b"damaged", key=b"b")
        append(stage.log, b"after", key=b"c")
        flip(Path(stage.log.segments.active.path(".log")), damaged_at)
        stage.log.damage = "found" if is_damaged else ""
        stage.lead((ME, OTHER))
        driver = stage.drive()
        await until(lambda: stage.suspected)
        await (asyncio.sleep(0.2) if is_damaged else until(lambda: driver.shard))
        assert stage.suspected[0] == 1
        assert (driver.shard is None) is is_damaged
        stage.lead((ME,))
        await until(lambda: driver.shard)
        assert driver.shard is not None
        assert driver.shard.notes == {b"a": b"before", b"c": b"after"}
        driver.close()

    with caplog.at_level(logging.ERROR):
        run(story())
    assert [record.msg for record in caplog.records].count("batch skipped") == 1


# the end


def test_waiters_are_told_when_leadership_is_lost(tmp_path: Path) -> None:
    async def story() -> None:
        stage = held(tmp_path)
        driver = await stage.driver()
        written, seen = driver.execute(write(b"a")), driver.execute(read(b"a"))
        stage.lose()
        driver.close()
        assert [await outcome_of(each) for each in (written, seen)] == [GONE, GONE]
        assert stage.committed == []
        assert driver.is_closed
        assert await outcome_of(driver.execute(read(b"a"))) is GONE
        driver.tell(lambda shard, now: pytest.fail("there is no shard to tell"))

    run(story())


def test_nothing_is_answered_between_the_loss_and_the_close(tmp_path: Path) -> None:
    async def story() -> None:
        stage = held(tmp_path)
        driver = await stage.driver()
        written = driver.execute(write(b"a"))
        stage.lose()  # the partition's waiters fail now; the coordinator follows the metadata a moment later
        await asyncio.sleep(0)
        assert not written.done()
        driver.close()
        assert await outcome_of(written) is GONE

    run(story())


def test_leadership_that_comes_back_finds_what_others_wrote_meanwhile(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        first = await stage.driver()
        await outcome_of(first.execute(write(b"a", b"mine")))
        stage.lose()
        first.close()
        stage.log.append_as_leader(batch((b"theirs",), key=b"a"), stage.leader_epoch, NOW_MS)  # as a follower has it
        second = await stage.driver()
        assert await outcome_of(second.execute(read(b"a"))) == b"theirs"
        assert await outcome_of(first.execute(read(b"a"))) is GONE
        second.close()

    run(story())


def test_a_close_while_it_loads_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        append(stage.log, b"note", key=b"a")
        stage.executor.may_go_on.clear()
        stage.lead()
        driver = stage.drive()
        await asyncio.sleep(0)
        driver.close()
        stage.executor.may_go_on.set()
        await asyncio.sleep(0.01)
        assert driver.shard is None
        assert stage.committed == []
        assert await outcome_of(driver.execute(read(b"a"))) is GONE

    run(story())


def test_a_shard_that_is_ahead_of_its_log_is_loaded_again(tmp_path: Path) -> None:
    """The append fails, so what the shard has decided is not so."""

    async def story() -> None:
        stage = Stage(tmp_path, min_insync_replicas=2)
        append(stage.log, b"old", key=b"a")
        driver = await stage.driver()
        forgotten = driver.shard
        stage.executor.may_go_on.clear()
        waiting = driver.execute(lambda shard, token, now: Outcome())
        refused = driver.execute(write(b"a", b"new"))
        assert await outcome_of(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await outcome_of(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await outcome_of(driver.execute(read(b"a"))) is LOADING
        stage.executor.may_go_on.set()
        await until(lambda: driver.shard)
        assert driver.shard is not forgotten
        assert await outcome_of(driver.execute(read(b"a"))) == b"old"
        driver.close()

    run(story())


# time


def test_time_passes_without_requests(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        driver = await stage.driver()
        shard = driver.shard
        assert shard is not None
        deadline_ms = int(time.monotonic() * 1000) + 30
        shard.deadline_ms = deadline_ms
        await outcome_of(driver.execute(read(b"a")))  # whatever happens sets the timer anew
        await until(lambda: shard.expired)
        assert deadline_ms - 1 <= shard.expired[0] < deadline_ms + 2000
        assert [record.key for record in read_all(stage.log)] == [b"expired"]
        driver.close()

    run(story())


def test_a_deadline_that_is_less_than_a_rounding_error_away_is_met(tmp_path: Path) -> None:
    """1.001 seconds are 1000.9999999999999 ms: by a clock that nothing else moves, what is left of them never ends."""
    loop = VirtualLoop(max_steps=10_000)

    async def story() -> None:
        stage = Stage(tmp_path)
        stage.clock = VirtualClock(loop)
        driver = await stage.driver()
        shard = driver.shard
        assert shard is not None
        for deadline_ms in range(1001, 2001, 10):
            shard.deadline_ms = deadline_ms
            await outcome_of(driver.execute(read(b"a")))
            await asyncio.sleep((deadline_ms + 5) / 1000 - loop.time())
            assert deadline_ms <= shard.expired[-1] <= deadline_ms + 2
        driver.close()

    loop.run_until_complete(story())
    loop.close()


def test_time_ends_with_the_driver(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        driver = await stage.driver()
        shard = driver.shard
        assert shard is not None
        shard.deadline_ms = int(time.monotonic() * 1000) + 500
        await outcome_of(driver.execute(read(b"a")))
        driver.close()
        await asyncio.sleep(0.6)
        assert shard.expired == []

    run(story())
