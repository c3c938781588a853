"""The controller of ten thousand partitions is killed: another one goes on, on a real store; the proof measures it."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from barnabas.cluster.events import CreateTopics, FenceBroker, NewTopic
from barnabas.cluster.metadata_log import MetadataLog
from barnabas.coordination.embedded import POLL_S, EmbeddedStore
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.clock import SystemClock
from tests.cluster.controller_holder import PARTITIONS, TOPICS

WITHIN_S = 1.0  # of this process's own time: others may have the machine meanwhile
PATIENCE_S = 100.0
WAYS = pytest.mark.parametrize("follows", [True, False], ids=["a follower", "a new process"])


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The controller, with all partitions made."""
    command = [sys.executable, "-m", "tests.cluster.controller_holder", str(tmp_path / "metadata.sqlite")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


async def take_over(path: Path, holder: subprocess.Popen[str], follows: bool) -> float:
    """The processor time that the next controller takes; it has followed, or starts now."""
    store = EmbeddedStore(str(path), 2, SystemClock())
    await store.open()
    log = MetadataLog(store, SystemClock(), Random(2), BrokerConfig({}))
    if follows:
        await log.start()
        assert not log.is_controller
        assert sum(len(topic.partitions) for topic in log.image.topics.values()) == PARTITIONS
    holder.kill()
    holder.wait(60)
    started = time.process_time()
    if not follows:
        await log.start()
    while not log.is_controller:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S / 10)
    (created,) = await log.submit(CreateTopics((NewTopic("first", 1, 2),)))
    assert created.error is None
    await log.submit(FenceBroker(1, log.image.brokers[1].epoch))
    took = time.process_time() - started
    leaders = Counter(partition.leader for topic in log.image.topics.values() for partition in topic.partitions)
    assert leaders[1] == 0
    assert leaders.total() == PARTITIONS + 1
    assert len(log.image.topics) == TOPICS + 1
    await log.stop()
    await store.close()
    return took


@pytest.fixture
def own_heap() -> Iterator[None]:
    """What other tests left in this process is not collected on the controller's time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@WAYS
def test_the_next_one_makes_topics_and_moves_all_leaders_of_the_dead_one(
    tmp_path: Path, holder: subprocess.Popen[str], follows: bool
) -> None:
    asyncio.run(asyncio.wait_for(take_over(tmp_path / "metadata.sqlite", holder, follows), PATIENCE_S))


@pytest.mark.proof
@pytest.mark.usefixtures("own_heap")
@WAYS
def test_the_next_one_is_at_work_within_a_second(tmp_path: Path, holder: subprocess.Popen[str], follows: bool) -> None:
    taking_over = take_over(tmp_path / "metadata.sqlite", holder, follows)
    assert asyncio.run(asyncio.wait_for(taking_over, PATIENCE_S)) < WITHIN_S
