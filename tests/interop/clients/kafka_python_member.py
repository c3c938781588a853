"""A member of a consumer group on kafka-python."""

from __future__ import annotations

import logging
import sys

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from tests.interop.clients.journal import Journal, Stop, arguments

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.journal.write("gain", [each.partition for each in assigned])

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.journal.write("lose", [each.partition for each in revoked])


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stop = Stop()
    address, group, topic, journal, settings = arguments()
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(settings["session_timeout_ms"]),
        heartbeat_interval_ms=500,
        request_timeout_ms=10_000,  # it may wait for an answer that it has lost: not for longer than the tests do
        partition_assignment_strategy=[ASSIGNORS[settings["partition_assignment_strategy"]]],
    )
    # One that is elected before it has heard of the topic assigns nothing, for good (kafka-python 3.0.12).
    assert consumer.partitions_for_topic(topic)
    consumer.subscribe([topic], listener=Listener(journal))
    while not stop:
        polled = consumer.poll(timeout_ms=100)
        for record in (record for records in polled.values() for record in records):
            journal.write("saw", [record.partition, record.offset])
        if polled:
            try:
                consumer.commit()
            except KafkaError as error:  # its partitions may have moved on; their new owner reads again
                print(error, file=sys.stderr)
    consumer.close()


main()
