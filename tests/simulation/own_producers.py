"""Our own producers in the simulation, which write down what they send and are told; what all transactions share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from barnabas.client.client import Client
from barnabas.client.errors import DeliveryTimeout, DeliveryUnknown
from barnabas.client.produce.delivery import Delivery
from barnabas.client.produce.transaction_errors import OutcomeUnknown, ProducerUnusable
from barnabas.client.producer import Producer
from barnabas.core.errors import KafkaError
from tests.checker.history import (
    Acknowledged,
    Failed,
    Outcome,
    Sent,
    TopicPartition,
    TransactionEnded,
)
from tests.simulation.world import World

ANSWER_MS = 15_000
REQUEST_MS = (4_000, ANSWER_MS)  # by chance
PATIENT_MS, HASTY_MS = 3_000_000, 12_000  # for a delivery
TRANSACTION_MS = 45_000
LIFE = 0
"""No election is unclean where these clients are."""


def own_client(world: World, name: str, bootstrap: str) -> Client:
    return Client(
        bootstrap,
        network=world.network,
        clock=world.clock,
        random=world.stream(f"{name}/client"),
        client_id=name,
        connect_timeout_ms=ANSWER_MS,
        request_timeout_ms=world.stream(f"{name}/patience").choice(REQUEST_MS),
        retry_timeout_ms=ANSWER_MS,
        group_thread=False,
    )


class Sends:
    """What one client sends: a new value each time, and what becomes of it."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._history = world.history
        self._rng = world.stream(f"{name}/values")
        self._count = 0
        self._max_bytes = self._rng.choice((20, 200, 2_000))

    def post(
        self, producer: Producer, partition: TopicPartition, transaction: str = "", source: bytes | None = None
    ) -> tuple[bytes, Delivery]:
        self._count += 1
        value = f"{self.name}:{self._count} ".encode() + self._rng.randbytes(self._rng.randint(0, self._max_bytes))
        self._history.record(Sent(self.name, partition, (value,), transaction, () if source is None else (source,)))
        return value, producer.post(partition.topic, value, partition=partition.partition)

    async def settle(self, partition: TopicPartition, value: bytes, delivery: Delivery) -> None:
        """Wait for the end of a send that need not succeed."""
        try:
            landed = await delivery
        except (DeliveryTimeout, DeliveryUnknown):
            self._history.record(Failed(self.name, partition, (value,), definite=False))
        else:
            self._history.record(Acknowledged(self.name, LIFE, partition, landed.offset, (value,)))


class OwnProducer:
    """The idempotent producer: many batches under way, some given up by an impatient one."""

    def __init__(self, world: World, name: str, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        self.name = name
        self._rng = world.stream(name)
        self._partitions = partitions
        self._sends = Sends(world, name)
        self._client = own_client(world, name, bootstrap)
        self._patience_ms = self._rng.choice((PATIENT_MS, PATIENT_MS, HASTY_MS))

    async def run(self, should_stop: Callable[[], bool]) -> None:
        options = {"batch_size": 300, "linger_ms": 3, "delivery_timeout_ms": self._patience_ms}
        fates: list[asyncio.Future[None]] = []
        async with Producer(self._client, **options) as producer:  # type: ignore[arg-type]
            while not should_stop():
                for _ in range(self._rng.randint(1, 6)):
                    partition = self._rng.choice(self._partitions)
                    fate = self._sends.settle(partition, *self._sends.post(producer, partition))
                    fates.append(asyncio.ensure_future(fate))
                await asyncio.sleep(self._rng.random() * 5)
            await asyncio.gather(*fates)
        await self._client.close()


class ChangedMind(Exception):
    """The caller does not want its transaction any more."""


def transactional_producer(client: Client, transactional_id: str) -> Producer:
    return Producer(
        client,
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_MS,
        delivery_timeout_ms=TRANSACTION_MS,
        max_block_ms=2 * ANSWER_MS + 500,
        batch_size=300,
        linger_ms=3,
    )


async def ended(
    record: Callable[[TransactionEnded], None], producer: str, transaction: str, block: Coroutine[None, None, None]
) -> bool:
    """Carry out a transaction's block, and write down how it ended; whether it was committed.

    What tells that the producer is of no more use is raised again.
    """
    try:
        await block
    except OutcomeUnknown:
        record(TransactionEnded(producer, transaction, Outcome.UNKNOWN))
        raise
    except (KafkaError, ChangedMind) as error:
        record(TransactionEnded(producer, transaction, Outcome.ABORTED))
        if isinstance(error, ProducerUnusable):
            raise
        return False
    record(TransactionEnded(producer, transaction, Outcome.COMMITTED))
    return True
