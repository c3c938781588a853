"""Consume, transform, produce in transactions, on confluent-kafka: `ADDRESS GROUP SOURCE TARGET SIZE PROGRESS`.

Every record of SOURCE goes to the same partition of TARGET as `done VALUE`, SIZE records to a transaction that also
carries the offsets. PROGRESS grows by one byte for each record that was committed. Calls that the library says may be
repeated are; errors that it calls abortable abort the transaction, and the records are read again from the committed
offsets; others end the program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.interop.clients.journal import Stop

T = TypeVar("T")
TIMEOUT = 5.0


def main() -> None:
    stop = Stop()
    address, group, source, target, size, progress = sys.argv[1:]
    written = os.open(progress, os.O_APPEND | os.O_WRONLY)
    common = {
        "bootstrap.servers": address,
        # By default it forgets brokers that are down, and then may wait for ever for the coordinator on one of them
        # (librdkafka's issue 5511).
        "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 500,
    }
    consumer = Consumer(
        {
            **common,
            "group.id": group,
            "group.instance.id": "transformer",  # its successor need not wait for its session to end
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({**common, "transactional.id": group, "linger.ms": 5})
    repeat(lambda: producer.init_transactions(TIMEOUT))
    consumer.subscribe([source])
    while not stop:
        messages = [message for message in consumer.consume(int(size), 0.5) if not message.error()]
        if messages:
            try:
                transform(consumer, producer, messages, target)
                os.write(written, b"." * len(messages))
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                print(error, file=sys.stderr)
                repeat(lambda: producer.abort_transaction(TIMEOUT))
                rewind(consumer)
    consumer.close()


def transform(consumer: Consumer, producer: Producer, messages: list[Message], target: str) -> None:
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, b"done " + (message.value() or b""), partition=message.partition())
    ends = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
    offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
    group = consumer.consumer_group_metadata()
    repeat(lambda: producer.send_offsets_to_transaction(offsets, group, TIMEOUT))
    repeat(lambda: producer.commit_transaction(TIMEOUT))


def repeat(call: Callable[[], T]) -> T:
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            print(error, file=sys.stderr)


def rewind(consumer: Consumer) -> None:
    """Go back to what is committed."""
    for each in repeat(lambda: consumer.committed(consumer.assignment(), TIMEOUT)):
        each.offset = max(each.offset, 0)
        consumer.seek(each)


main()
