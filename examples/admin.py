"""Look after a cluster: make a topic, change it, see how far a group is, and clean up.

python examples/admin.py localhost:9092
"""

from __future__ import annotations

import asyncio
import sys

from barnabas import Admin, KafkaError


async def main(address: str, topic: str = "example-of-admin") -> None:
    async with Admin(address) as admin:
        created = await admin.topics.create(topic, partitions=3, configs={"retention.ms": "3600000"})
        print(f"topic {created.name!r} has {created.partitions} partitions")
        try:
            await admin.topics.create(topic)
        except KafkaError as error:
            print(f"refused ({'try again' if error.retriable else 'for good'}): {error}")
        for group in await admin.groups.list():
            print(f"group {group.group_id!r} is {group.state}")
        await admin.topics.delete(topic)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
