"""Log directories: how many bytes of a partition a broker has."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.client.client import Client
from barnabas.client.metadata import BrokerInfo, TopicPartition, by_topic
from barnabas.wire.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


async def replica_bytes(
    client: Client, broker: BrokerInfo, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The sizes of those of the partitions that the broker has."""
    wanted = [DescribableLogDirTopic(topic, indexes) for topic, indexes in by_topic(partitions).items()]
    response = await client.ask(broker, DescribeLogDirsRequest(wanted))
    return {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
