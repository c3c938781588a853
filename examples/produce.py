"""Write records: one that is waited for, and many that go out together.

python examples/produce.py localhost:9092 orders
"""

from __future__ import annotations

import asyncio
import sys

from barnabas import Producer


async def main(address: str, topic: str) -> None:
    async with Producer(address, value_serializer="json") as producer:
        told = await producer.send(topic, {"order": 1, "amount": 20}, key=b"ann")
        print(f"record 1 is in partition {told.partition} at offset {told.offset}")

        # `post` does not wait: records that are posted together leave together.
        deliveries = [producer.post(topic, {"order": number, "amount": 5}, key=b"ben") for number in range(2, 101)]
        offsets = [(await delivery).offset for delivery in deliveries]
        print(f"{len(offsets)} more records up to offset {offsets[-1]}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
