"""A consumer that has read what its leader's log never had finds out, by the epochs of leaders (KIP-320)."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas import Consumer, OffsetAndMetadata, TopicPartition
from barnabas.client.consume.consumer_errors import LogTruncated
from tests.clients.consumer_topics import Source, numbers, run
from tests.peers import BarnabasServer

GROUP = "readers"


def test_a_log_that_was_cut_is_noticed(tmp_path: Path, topic_name: str) -> None:
    """The first epoch ends at offset 5. A group that has read 8 records of it has read some that are gone."""
    topic, partition = topic_name, TopicPartition(topic_name, 0)
    server = BarnabasServer(tmp_path / "data")
    try:
        source = Source(server.address, topic)
        source.write(numbers(0, 5))
        server.stop()
        server = BarnabasServer(tmp_path / "data")
        source = Source(server.address, topic, partitions=0)
        source.write(numbers(5, 10))

        async def work() -> None:
            async with Consumer(server.address, topics=[topic], auto_offset_reset="earliest") as consumer:
                epochs: list[int] = []
                while len(epochs) < 10:
                    epochs += [consumer.passed()[partition].leader_epoch for _ in await consumer.poll(20_000)]
            async with Consumer(server.address, group=GROUP) as consumer:
                await consumer.commit({partition: OffsetAndMetadata(8, leader_epoch=epochs[-1] - 1)})
            async with Consumer(server.address, group=GROUP, auto_offset_reset="none") as consumer:
                consumer.assign([partition])
                with pytest.raises(LogTruncated, match="was cut at offset 5") as caught:
                    await consumer.poll(20_000)
                assert (caught.value.position, caught.value.end_offset) == (8, 5)
            async with Consumer(server.address, group=GROUP, auto_offset_reset="latest") as consumer:
                consumer.assign([partition])
                found: list[bytes] = []
                while len(found) < 5:
                    found += [record.value for record in await consumer.poll(20_000)]
                assert found == numbers(5, 10)

        run(work)
    finally:
        server.stop()
