"""Turn one topic into another, each record exactly once whatever crashes: records and offsets in one transaction.

    python examples/exactly_once_topic_to_topic.py localhost:9092 orders invoices worker-1

Start it several times with names of their own, and the partitions are spread over all of them. What it writes and how
far it has read become visible together; readers of the second topic use isolation_level="read_committed". A worker that
comes back under its name aborts what its former self left open. One that its group left behind cannot commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from barnabas import Consumer, ConsumerRecord, KafkaError, NewRecord, Producer, ProducerUnusable


def invoice_of(order: ConsumerRecord) -> NewRecord:
    return NewRecord(b"invoice for " + order.value, key=order.key)


async def main(address: str, source: str, target: str, name: str) -> None:
    async with (
        Producer(address, transactional_id=f"invoices-{name}") as producer,
        Consumer(
            address,
            topics=[source],
            group="invoices",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
    ):
        while True:
            orders = await consumer.poll()
            if not orders:
                continue
            try:
                async with producer.transaction() as transaction:
                    await producer.send_many(target, map(invoice_of, orders))
                    await transaction.send_offsets(consumer)
            except ProducerUnusable:
                raise  # fenced: another worker goes by this name
            except KafkaError as problem:
                print(f"again from the last commit: {problem}", flush=True)
                consumer.rewind()
            else:
                print(f"{len(orders)} invoices", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
