"""A member of a consumer group on our own client."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from barnabas import Consumer, KafkaError, TopicPartition
from tests.interop.clients.journal import Stop, arguments


def option(text: str) -> Any:
    return int(text) if text.isdigit() else text


async def main() -> None:
    stop = Stop()
    address, group, topic, journal, settings = arguments()
    options = {name: option(text) for name, text in settings.items()}
    if "partition_assignment_strategy" in options:
        options["partition_assignment_strategy"] = options["partition_assignment_strategy"].split(",")

    def gain(partitions: list[TopicPartition]) -> None:
        journal.write("gain", [each.partition for each in partitions])

    def lose(partitions: list[TopicPartition]) -> None:
        journal.write("lose", [each.partition for each in partitions])

    async with Consumer(
        address,
        topics=[topic],
        group=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        on_assigned=gain,
        on_revoked=lose,
        **options,
    ) as consumer:
        while not stop:
            records = await consumer.poll(100)
            for record in records:
                journal.write("saw", [record.partition, record.offset])
            if records:
                try:
                    await consumer.commit()
                except KafkaError as error:  # its partitions may have moved on; their new owner reads again
                    print(error, file=sys.stderr)


asyncio.run(main())
