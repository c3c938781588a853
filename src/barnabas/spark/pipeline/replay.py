"""Dead letters sent round again: back to the topics that they came from, each once.

A group remembers how far the dead letters were replayed, in the transaction that sends them. What comes back as a dead
letter is a new one, for another replay; the header `barnabas.replays` counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.client.consume.consumed import ConsumerRecord
from barnabas.client.consumer import Consumer
from barnabas.client.list_offsets import LATEST, Isolation, list_offsets
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer import NewRecord, Producer
from barnabas.spark.cluster import open_client
from barnabas.spark.kafka_options import KafkaOptions
from barnabas.spark.options import parse_batch_options
from barnabas.spark.pipeline.dead_letters import CAUSE, OFFSET, PARTITION, PIPELINE, PREFIX, REPLAYS, TOPIC
from barnabas.spark.pipeline.definition import Pipeline
from barnabas.spark.pipeline.errors import PipelineError


class Letter(NamedTuple):
    """A dead letter, read."""

    topic: str
    partition: int
    offset: int
    cause: str
    record: NewRecord


async def replay(pipeline: Pipeline) -> Counter[str]:
    """Send what has not been replayed yet, up to the end as it is now; how many went to each topic."""
    topic, kafka = letters_topic(pipeline)
    sent: Counter[str] = Counter()
    name = f"barnabas-pipeline-{pipeline.name}-replay"
    async with (
        Producer(kafka.bootstrap, transactional_id=name, **kafka.client_settings()) as producer,
        _consumer(topic, kafka, group=name) as consumer,
    ):
        ends = await find_ends(topic, kafka)
        while not await _is_at(consumer, ends):
            letters = own_letters(await consumer.poll(), pipeline.name)
            if not letters:
                continue
            async with producer.transaction() as transaction:
                for letter in letters:
                    await producer.send_many(letter.topic, [letter.record])
                await transaction.send_offsets(consumer)
            sent.update(letter.topic for letter in letters)
    return sent


async def list_letters(pipeline: Pipeline) -> list[Letter]:
    """What a replay would send, without sending it."""
    topic, kafka = letters_topic(pipeline)
    found: list[ConsumerRecord] = []
    async with _consumer(topic, kafka, group=f"barnabas-pipeline-{pipeline.name}-replay") as consumer:
        ends = await find_ends(topic, kafka)
        while not await _is_at(consumer, ends):
            found += await consumer.poll()
    return own_letters(found, pipeline.name)


def own_letters(records: Iterable[ConsumerRecord], pipeline: str) -> list[Letter]:
    """Those of this pipeline: several may share a topic of dead letters."""
    return [letter for name, letter in read_letters(records) if name == pipeline]


def read_letters(records: Iterable[ConsumerRecord]) -> list[tuple[str, Letter]]:
    """Dead letters, each with the name of the pipeline that wrote it; other records are left out."""
    letters = []
    for record in records:
        told = {name: value.decode(errors="replace") for name, value in record.headers if value is not None}
        if not {PIPELINE, TOPIC, PARTITION, OFFSET} <= told.keys():
            continue
        headers = [(name, value) for name, value in record.headers if not name.startswith(PREFIX) and name != REPLAYS]
        headers.append((REPLAYS, str(int(told.get(REPLAYS, "0")) + 1).encode()))
        partition = int(told[PARTITION])
        again = NewRecord(record.value, record.key, headers, partition)
        letter = Letter(told[TOPIC], partition, int(told[OFFSET]), told.get(CAUSE, ""), again)
        letters.append((told[PIPELINE], letter))
    return letters


def letters_topic(pipeline: Pipeline) -> tuple[str, KafkaOptions]:
    if pipeline.dead_letters is None:
        raise PipelineError(f"pipeline {pipeline.name!r} has no dead_letters to replay")
    topic = pipeline.dead_letters.topic
    return topic, parse_batch_options({**pipeline.cluster.source_options(), "subscribe": topic}).kafka


def _consumer(topic: str, kafka: KafkaOptions, group: str) -> Consumer:
    return Consumer(
        kafka.bootstrap,
        topics=[topic],
        group=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **kafka.client_settings(),
    )


async def find_ends(topic: str, kafka: KafkaOptions) -> dict[TopicPartition, int]:
    async with open_client(kafka) as client:
        found = await client.metadata.topic(topic)
        wanted = {TopicPartition(topic, each.partition): LATEST for each in found.partitions}
        ends = await list_offsets(client, wanted, Isolation.READ_COMMITTED)
    return {partition: end.offset for partition, end in ends.items()}


async def _is_at(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Whether all that lies before the ends has been taken; a partition that is not assigned yet has not."""
    if not ends.keys() <= set(consumer.assignment()):
        return False
    return all([await consumer.position(partition) >= end for partition, end in ends.items()])
