"""What tests of a broker's logs do as its clients: write records of many keys, and read all that is there."""

from __future__ import annotations

import random
import time

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition


def producer(address: str, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": address, "linger.ms": 5, "batch.num.messages": 50, **settings})


def consume(address: str, topic: str, end: int, **settings: object) -> list[Message]:
    """All that a consumer sees from offset 0, up to the end of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + 30
    at_end = False
    while not at_end:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                at_end = message.offset() == end
    consumer.close()
    return found


def end_offset(address: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[1]
    except KafkaException:  # for a moment after its start, Kafka knows of no leader
        return -1
    finally:
        consumer.close()
    return end


def write(address: str, topic: str, rng: random.Random, count: int) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        sender = producer(address, **{"compression.type": codec, "enable.idempotence": codec != "gzip"})
        for _ in range(count // 5):
            value = None if rng.random() < 0.1 else rng.randbytes(1200)
            sender.produce(topic, value, key=b"%d" % rng.randrange(300))
            sender.poll(0)
        assert sender.flush(30) == 0
