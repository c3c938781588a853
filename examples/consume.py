"""Read a topic from its beginning, without a group, and stop at its present end.

python examples/consume.py localhost:9092 orders
"""

from __future__ import annotations

import asyncio
import sys

from barnabas import Consumer


async def main(address: str, topic: str) -> None:
    async with Consumer(address, topics=[topic], auto_offset_reset="earliest", value_deserializer="json") as consumer:
        ends = await consumer.end_offsets()
        left = {partition for partition, end in ends.items() if await consumer.position(partition) < end}
        total = 0
        while left:
            for record in await consumer.poll():
                total += record.value["amount"]
            left = {partition for partition in left if await consumer.position(partition) < ends[partition]}
        print(f"the orders come to {total}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
