"""Add up orders, each exactly once whatever crashes: the offsets are kept with the results, in one SQLite file.

    python examples/exactly_once_sqlite.py localhost:9092 orders totals.db

A record is an order: the key is the customer, the value the amount. One database transaction holds what a batch of
records changes and how far its partition has been read, so a crash takes back both or neither, and the next start goes
on where the database stands. The file belongs to one process, so this reads all partitions by itself, without a group.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys

from barnabas import Admin, Consumer, ConsumerBatch, TopicPartition

SCHEMA = """
CREATE TABLE IF NOT EXISTS totals (customer TEXT PRIMARY KEY, orders INTEGER NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS places (
    topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL, PRIMARY KEY (topic, partition)
);
"""
ADD = """
INSERT INTO totals VALUES (?, 1, ?)
ON CONFLICT (customer) DO UPDATE SET orders = orders + 1, amount = amount + excluded.amount
"""
MOVE = "INSERT INTO places VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset"


class Totals:
    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path)
        self._database.executescript(SCHEMA)

    def next_offset(self, partition: TopicPartition) -> int:
        found = self._database.execute("SELECT next_offset FROM places WHERE (topic, partition) = (?, ?)", partition)
        row = found.fetchone()
        return row[0] if row else 0

    def add(self, batch: ConsumerBatch) -> None:
        with self._database:  # commits at the end, rolls back by an exception
            self._database.executemany(ADD, [(record.key.decode(), int(record.value)) for record in batch])
            self._database.execute(MOVE, (*batch.partition, batch.next_offset))


async def main(address: str, topic: str, path: str) -> None:
    totals = Totals(path)
    async with Admin(address) as admin:
        count = len((await admin.topics.describe(topic)).partitions)
    partitions = [TopicPartition(topic, number) for number in range(count)]
    async with Consumer(address, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign({partition: totals.next_offset(partition) for partition in partitions})
        async for batch in consumer.batches():
            totals.add(batch)
            print(f"{batch.partition} is in the database up to offset {batch.next_offset}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
