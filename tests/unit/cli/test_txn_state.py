"""Which open transactions hang: those that no coordinator has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from barnabas.cli.txn_state import hanging
from barnabas.client.admin.producers import ProducerState
from barnabas.client.admin.transactions import TransactionDescription, TransactionListing, TransactionState
from barnabas.client.metadata import TopicPartition

HERE = TopicPartition("orders", 0)
THERE = TopicPartition("orders", 1)


def state(producer_id: int, start_offset: int | None) -> ProducerState:
    return ProducerState(producer_id, 0, 5, 1000, 0, start_offset)


class Coordinators:
    """Knows the partitions of each producer's open transaction."""

    def __init__(self, known: dict[int, tuple[TopicPartition, ...]]) -> None:
        self._known = known

    async def list(self, *, producer_ids: Any) -> list[TransactionListing]:
        return [
            TransactionListing(f"id-{each}", each, TransactionState.ONGOING)
            for each in producer_ids & self._known.keys()
        ]

    async def describe_many(self, ids: Iterable[str]) -> dict[str, TransactionDescription]:
        numbers = [int(name.removeprefix("id-")) for name in ids]
        return {
            f"id-{each}": TransactionDescription(
                f"id-{each}", TransactionState.ONGOING, each, 0, 60_000, 1, self._known[each]
            )
            for each in numbers
        }


class Leaders:
    async def describe_many(self, partitions: Any) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        return {HERE: (state(1, None), state(2, 10), state(3, 20)), THERE: (state(2, 30), state(4, 40))}


def test_a_transaction_hangs_where_its_coordinator_does_not_know_of_it() -> None:
    admin = SimpleNamespace(producers=Leaders(), transactions=Coordinators({2: (HERE,), 3: (HERE, THERE)}))
    found = asyncio.run(hanging(cast(Any, admin), [HERE, THERE]))
    assert [(row["partition"], row["producer_id"], row["transaction_start_offset"]) for row in found] == [
        (1, 2, 30),
        (1, 4, 40),
    ]
