"""The producer itself on three simulated brokers that die, come back and lose connections.

No record is appended twice or before an earlier one, and none that was acknowledged is missing. A patient producer
delivers all; one that gives up soon leaves gaps in its sequence numbers, and must find its way past them.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.client import Client
from barnabas.client.errors import DeliveryTimeout, DeliveryUnknown
from barnabas.client.produce.delivery import Delivery
from barnabas.client.producer import Producer
from tests.checker.history import UNTOLD, TopicPartition
from tests.simulation.admin import Topic, create_topics
from tests.simulation.brokers import Brokers
from tests.simulation.consumer import read_to_end
from tests.simulation.fault_plan import draw_disturbance
from tests.simulation.machine import Machine
from tests.simulation.three_brokers import BROKER_IDS, SETTINGS
from tests.simulation.watched_metadata import WatchedMetadata
from tests.simulation.world import World

TOPIC = Topic("safe", 3, (("min.insync.replicas", "2"),), 3)
RECORDS = 600
MAX_STEPS = 2_000_000


class Run:
    def __init__(self, world: World, delivery_timeout_ms: int) -> None:
        self.world = world
        self.rng = world.stream("run")
        self.delivery_timeout_ms = delivery_timeout_ms
        self.given_up = 0
        self.told: dict[int, list[tuple[int, int | None]]] = {}
        """Per partition, what the producer told of each record."""
        self.found: dict[int, dict[int, int]] = {}
        """Per partition, the offsets of the records that are there in the end."""
        metadata = WatchedMetadata()
        self.machines = [Machine(world, metadata, each, ("/disk/data",), SETTINGS) for each in BROKER_IDS]

    async def main(self) -> None:
        await asyncio.gather(*(machine.start() for machine in self.machines))
        addresses = {machine.broker_id: machine.address for machine in self.machines}
        admin = Brokers(self.world.network, addresses, lambda _: 0)
        ids = await create_topics(admin, [TOPIC])
        deliveries: dict[int, list[tuple[int, Delivery]]] = {partition: [] for partition in range(TOPIC.partitions)}
        bootstrap = ",".join(f"{host}:{port}" for host, port in addresses.values())
        client = Client(
            bootstrap,
            network=self.world.network,
            clock=self.world.clock,
            random=self.world.stream("client"),
            request_timeout_ms=2000,
        )
        # Batches of a few records, so that many are in flight.
        options = {"batch_size": 150, "linger_ms": 3, "delivery_timeout_ms": self.delivery_timeout_ms}
        async with client:
            producer = Producer(client, **options)  # type: ignore[arg-type]
            async with producer:
                faults = asyncio.ensure_future(self.faults())
                for number in range(RECORDS):
                    partition = self.rng.randrange(TOPIC.partitions)
                    handle = producer.post(TOPIC.name, b"%d" % number, partition=partition)
                    deliveries[partition].append((number, handle))
                    if self.rng.random() < 0.1:
                        await asyncio.sleep(self.rng.random() * 0.1)
                await faults
                for partition, handles in deliveries.items():
                    self.told[partition] = [await self.fate(*posted) for posted in handles]
        for partition, offsets in self.told.items():
            _, records = await read_to_end(admin, TopicPartition(TOPIC.name, partition), ids)
            self.found[partition] = {int(value): offset for offset, value in records}
            assert len(self.found[partition]) == len(records), "a record was appended twice"
            assert list(self.found[partition]) == sorted(self.found[partition]), "records changed places"
            for number, offset in offsets:
                if offset is not None:
                    assert number in self.found[partition], "an acknowledged record is missing"
                    assert offset in (UNTOLD, self.found[partition][number])
        admin.close()
        for machine in self.machines:
            machine.kill()

    async def fate(self, number: int, handle: Delivery) -> tuple[int, int | None]:
        """A record's number, and the offset that was told; None if it was given up."""
        try:
            return number, (await handle).offset
        except (DeliveryTimeout, DeliveryUnknown):
            self.given_up += 1
            return number, None

    async def faults(self) -> None:
        for _ in range(8):
            await asyncio.sleep(self.rng.random())
            if self.rng.random() < 0.6:
                self.world.disturb(draw_disturbance(self.rng))
                continue
            machine = self.rng.choice(self.machines)
            machine.kill()
            await asyncio.sleep(self.rng.random() * 3)
            await machine.start()


def run(seed: int, delivery_timeout_ms: int) -> Run:
    world = World(seed, MAX_STEPS)
    simulation = Run(world, delivery_timeout_ms)
    problems = world.run(simulation.main())
    assert not problems, "\n".join(problems)
    return simulation


@pytest.mark.parametrize("seed", range(8))
def test_a_patient_producer_has_every_record_appended_once_and_in_order(seed: int) -> None:
    simulation = run(seed, 500_000)
    assert simulation.given_up == 0
    assert sum(len(records) for records in simulation.found.values()) == RECORDS


def test_what_is_given_up_leaves_the_rest_once_and_in_order() -> None:
    given_up = [run(seed, 300).given_up for seed in range(8)]
    assert max(given_up) > 0, "no run has put the producer to the test"
