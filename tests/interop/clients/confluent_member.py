"""A member of a consumer group on confluent-kafka."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.interop.clients.journal import Stop, arguments


def main() -> None:
    stop = Stop()
    address, group, topic, journal, settings = arguments()
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )

    def gain(_: Consumer, partitions: list[TopicPartition]) -> None:
        journal.write("gain", [each.partition for each in partitions])

    def lose(_: Consumer, partitions: list[TopicPartition]) -> None:
        journal.write("lose", [each.partition for each in partitions])

    consumer.subscribe([topic], on_assign=gain, on_revoke=lose, on_lost=lose)
    while not stop:
        messages = consumer.consume(100, 0.1)
        for message in messages:
            if message.error():
                print(message.error(), file=sys.stderr)
            else:
                journal.write("saw", [message.partition(), message.offset()])
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:  # its partitions may have moved on; their new owner reads again
                print(error, file=sys.stderr)
    consumer.close()


main()
