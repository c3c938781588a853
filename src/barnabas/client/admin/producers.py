"""Producers: who writes into a partition, how far each has come, and whose transaction is open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.client.client import Client
from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.client.outcomes import alone, refusal, settled
from barnabas.client.routes import LEADERS, ask
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest

_NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class ProducerState:
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    """-1 for a producer that has ended no transaction yet."""
    transaction_start_offset: int | None
    """Where its open transaction begins in this partition; None if none is open."""


class Producers:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(self, partition: TopicPartition) -> tuple[ProducerState, ...]:
        """The producers that a partition's leader knows, by id."""
        return (await alone(self.describe_many([partition])))[partition]

    async def describe_many(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        def request(led: list[TopicPartition]) -> DescribeProducersRequest:
            return DescribeProducersRequest([TopicRequest(topic, indexes) for topic, indexes in by_topic(led).items()])

        return settled(await ask(self._client, LEADERS, partitions, request, _read))


def _read(response: Any) -> dict[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
    answers: dict[TopicPartition, tuple[ProducerState, ...] | KafkaError] = {}
    for topic in response.topics:
        for found in topic.partitions:
            partition = TopicPartition(topic.name, found.partition_index)
            problem = refusal(found.error_code, f"cannot describe the producers of {partition}", found.error_message)
            states = (_state(producer) for producer in found.active_producers)
            answers[partition] = problem or tuple(sorted(states, key=lambda state: state.producer_id))
    return answers


def _state(producer: Any) -> ProducerState:
    start = producer.current_txn_start_offset
    return ProducerState(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        producer.coordinator_epoch,
        None if start == _NO_OFFSET else start,
    )
