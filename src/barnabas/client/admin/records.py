"""Records: drop the oldest ones of a partition."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.metadata import BrokerInfo, TopicPartition, by_topic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k21_delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

_TIMEOUT_MS = 30_000


async def delete_records(client: Client, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Drop what lies before an offset; the answer is each partition's new low watermark."""

    async def ask(leader: BrokerInfo, led: list[TopicPartition]) -> dict[TopicPartition, int | KafkaError]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=before[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(led).items()
            ],
            timeout_ms=_TIMEOUT_MS,
        )
        answers: dict[TopicPartition, int | KafkaError] = {}
        for topic in (await client.ask(leader, request)).topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                if result.error_code == ErrorCode.NONE:
                    answers[partition] = result.low_watermark
                else:
                    offset = before[partition]
                    answers[partition] = refused(result.error_code, f"cannot trim {partition} to offset {offset}")
        return answers

    return await client.ask_leaders(before, ask)
