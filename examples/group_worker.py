"""Share the work of a topic: start this several times, and the partitions are spread over all of them.

    python examples/group_worker.py localhost:9092 orders billing

Ctrl-C leaves the group in order: what is done is committed, and the others take over at once.
"""

from __future__ import annotations

import asyncio
import sys

from barnabas import Consumer, TopicPartition


def assigned(partitions: list[TopicPartition]) -> None:
    print(f"got {', '.join(map(str, partitions)) or 'nothing'}", flush=True)


async def main(address: str, topic: str, group: str) -> None:
    async with Consumer(
        address, topics=[topic], group=group, auto_offset_reset="earliest", on_assigned=assigned
    ) as consumer:
        async for record in consumer:
            # A record counts as done when the next one is asked for; only what is done is committed.
            print(f"{record.topic}-{record.partition} at {record.offset}: {record.value.decode()}", flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        print("left the group")
