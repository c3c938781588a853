"""A member of a consumer group on aiokafka."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from tests.interop.clients.journal import Journal, Stop, arguments

ASSIGNORS = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.journal.write("gain", [each.partition for each in assigned])

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.journal.write("lose", [each.partition for each in revoked])


async def main() -> None:
    stop = Stop()
    address, group, topic, journal, settings = arguments()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(settings["session_timeout_ms"]),
        heartbeat_interval_ms=500,
        partition_assignment_strategy=[ASSIGNORS[settings["partition_assignment_strategy"]]],
    )
    consumer.subscribe([topic], listener=Listener(journal))
    await consumer.start()
    while not stop:
        polled = await consumer.getmany(timeout_ms=100)
        for record in (record for records in polled.values() for record in records):
            journal.write("saw", [record.partition, record.offset])
        if polled:
            try:
                await consumer.commit()
            except KafkaError as error:  # its partitions may have moved on; their new owner reads again
                print(error, file=sys.stderr)
    await consumer.stop()


asyncio.run(main())
