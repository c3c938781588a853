"""Add up orders, each exactly once whatever crashes, by several workers: offsets and results in one MariaDB.

    python examples/exactly_once_mariadb.py localhost:9092 orders mysql://root@127.0.0.1:3306/shop

A record is an order: the key is the customer, the value the amount. Start it several times, and the partitions are
spread over all of them. One database transaction holds what a batch of records changes and how far its partition has
been read. Whoever gets a partition goes on where the database stands, whatever the group knows. A worker that has lost
a partition and does not know it yet finds that another has moved on, and its batch is taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from urllib.parse import urlsplit

import pymysql

from barnabas import Consumer, ConsumerBatch, TopicPartition

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS totals"
    " (customer VARCHAR(100) PRIMARY KEY, orders BIGINT NOT NULL, amount BIGINT NOT NULL) ENGINE InnoDB",
    "CREATE TABLE IF NOT EXISTS places (topic VARCHAR(249), part INT, next_offset BIGINT NOT NULL,"
    " PRIMARY KEY (topic, part)) ENGINE InnoDB",
)
FIND = "SELECT next_offset FROM places WHERE topic = %s AND part = %s"
BEGIN = "INSERT IGNORE INTO places VALUES (%s, %s, 0)"
MOVE = "UPDATE places SET next_offset = %s WHERE topic = %s AND part = %s AND next_offset <= %s"
ADD = (
    "INSERT INTO totals VALUES (%s, 1, %s)"
    " ON DUPLICATE KEY UPDATE orders = orders + 1, amount = amount + VALUES(amount)"
)


class Totals:
    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._connection = pymysql.connect(
            host=place.hostname,
            port=place.port or 3306,
            user=place.username,
            password=place.password or "",
            database=place.path.strip("/"),
        )
        with self._connection.cursor() as cursor:
            for statement in SCHEMA:
                cursor.execute(statement)

    def next_offset(self, partition: TopicPartition) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(BEGIN, partition)
            self._connection.commit()
            cursor.execute(FIND, partition)
            (offset,) = cursor.fetchone() or (0,)
            self._connection.commit()
            return int(offset)

    def add(self, batch: ConsumerBatch) -> bool:
        """Whether it was still ours to add: the move locks the partition's row until the end of the transaction."""
        with self._connection.cursor() as cursor:
            ours = cursor.execute(MOVE, (batch.next_offset, *batch.partition, batch.from_offset)) == 1
            if ours:
                cursor.executemany(ADD, [(record.key.decode(), int(record.value)) for record in batch])
            self._connection.commit()
            return ours


async def main(address: str, topic: str, url: str) -> None:
    totals = Totals(url)

    async def go_on_where_the_database_stands(partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            consumer.seek(partition, await asyncio.to_thread(totals.next_offset, partition))

    async with Consumer(
        address,
        topics=[topic],
        group="totals",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        on_assigned=go_on_where_the_database_stands,
    ) as consumer:
        async for batch in consumer.batches():
            if await asyncio.to_thread(totals.add, batch):
                print(f"{batch.partition} is in the database up to offset {batch.next_offset}", flush=True)
            else:
                print(f"{batch.partition} went to another worker", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
