"""Batches into a Produce request, and its response back to the batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.client.errors import refused
from barnabas.client.metadata import TopicInfo, TopicPartition
from barnabas.client.produce.delivery import Appended
from barnabas.client.produce.partition_queue import PartitionQueue
from barnabas.client.produce.producer_batch import ProducerBatch
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

_APPENDED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""A duplicate is of an earlier attempt that succeeded, too long ago for its offset to be known."""


class Sent(NamedTuple):
    queue: PartitionQueue
    batch: ProducerBatch


def produce_request(
    sent: Sequence[Sent], topics: Mapping[str, TopicInfo], acks: int, timeout_ms: int, transactional_id: str | None
) -> ProduceRequest:
    """One request for batches of several partitions, each of which is there once."""
    by_topic: dict[str, TopicProduceData] = {}
    for queue, batch in sent:
        name, partition = queue.partition
        data = by_topic.get(name)
        if data is None:
            if name not in topics:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r} is being looked for")
            data = by_topic[name] = TopicProduceData(name=name, topic_id=topics[name].topic_id, partition_data=[])
        data.partition_data.append(PartitionProduceData(index=partition, records=batch.data))
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=list(by_topic.values())
    )


def answers(
    request: ProduceRequest, response: Any, sent: Sequence[Sent]
) -> Iterator[tuple[Sent, Appended | KafkaError]]:
    """What became of each batch. Old responses name their topics, new ones give the ids."""
    names: dict[str | bytes, str] = {}
    for topic in request.topic_data:
        names[topic.name] = names[topic.topic_id] = topic.name
    found: dict[tuple[str | None, int], PartitionProduceResponse] = {
        (names.get(topic.name or topic.topic_id), answer.index): answer
        for topic in response.responses
        for answer in topic.partition_responses
    }
    for each in sent:
        partition = each.queue.partition
        answer = found.get(partition)
        yield each, _outcome(partition, answer) if answer is not None else _unanswered(partition)


def _outcome(partition: TopicPartition, answer: PartitionProduceResponse) -> Appended | KafkaError:
    if answer.error_code in _APPENDED:
        return Appended(answer.base_offset, answer.log_append_time_ms)
    reasons = [record.batch_index_error_message for record in answer.record_errors]
    message = next(filter(None, reasons), None) or answer.error_message
    return refused(answer.error_code, f"cannot append to {partition}", message)


def _unanswered(partition: TopicPartition) -> KafkaError:
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the broker's answer does not speak of {partition}")
