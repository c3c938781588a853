"""Records: drop the oldest ones of a partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.client.client import Client
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.outcomes import refusal, settled
from barnabas.client.routes import LEADERS, ask
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k21_delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

ALL = -1
"""As an offset: everything that is committed now."""
_TIMEOUT_MS = 30_000


class Records:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def delete(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Drop what lies before an offset, for good; the answer is each partition's new low watermark."""

        def request(led: list[TopicPartition]) -> DeleteRecordsRequest:
            return DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        topic,
                        [DeleteRecordsPartition(index, before[TopicPartition(topic, index)]) for index in indexes],
                    )
                    for topic, indexes in by_topic(led).items()
                ],
                timeout_ms=_TIMEOUT_MS,
            )

        def read(response: Any) -> dict[TopicPartition, int | KafkaError]:
            answers: dict[TopicPartition, int | KafkaError] = {}
            for topic in response.topics:
                for found in topic.partitions:
                    partition = TopicPartition(topic.name, found.partition_index)
                    what = f"cannot trim {partition} to offset {before[partition]}"
                    problem = refusal(found.error_code, what)
                    answers[partition] = found.low_watermark if problem is None else problem
            return answers

        return settled(await ask(self._client, LEADERS, before, request, read))
