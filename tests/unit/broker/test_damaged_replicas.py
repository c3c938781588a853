"""What a broker does about a replica that is damaged, in virtual time: leave it to others, or keep the only copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.damaged_replicas import DamagedReplicas
from barnabas.cluster.events import AlterPartition
from barnabas.cluster.replicas import Damaged
from barnabas.core.errors import ErrorCode, KafkaError
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.clusters import TestCluster

BROKER = 1


class Log:
    topic = "orders"
    partition = 0
    log_end_offset = 5
    is_offline = is_short = False
    damage = ""


class Broker:
    """Broker 1 of three; the controller's answers come from its own metadata, which it applies when the test says."""

    def __init__(self, *replicas: int, refusals: int = 0, **configs: str) -> None:
        self.broker_id = BROKER
        self.metadata = TestCluster(3)
        self.metadata.create(*replicas, **configs)
        self.log = Log()
        self.leader_epoch = 0
        self.own_epoch: int | None = None
        self.controller = self.replicas = self
        self.asked: list[AlterPartition] = []
        self._refusals = refusals

    @property
    def broker_epoch(self) -> int:
        return self.metadata.image.brokers[BROKER].epoch if self.own_epoch is None else self.own_epoch

    def damaged(self) -> list[Damaged]:
        return [Damaged("orders", 0, self.leader_epoch, self.log.damage)] if self.log.damage else []

    def logs(self) -> list[Any]:
        return [self.log]

    async def submit(self, event: AlterPartition) -> Any:
        self.asked.append(event)
        if self._refusals:
            self._refusals -= 1
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "too late")
        return self.metadata.submit(event)


def play(broker: Broker, *story: Callable[[DamagedReplicas], None]) -> None:
    """Damage is found; then something happens every ten seconds."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)

    async def run() -> None:
        broker.metadata.refresh = lambda: asyncio.sleep(0)  # type: ignore[attr-defined]
        replicas = DamagedReplicas(broker)  # type: ignore[arg-type]
        task = asyncio.create_task(replicas.run())
        for _ in range(2):
            replicas.found(broker.log, "a bit has flipped")  # type: ignore[arg-type]
        await asyncio.sleep(10)
        for happens in story:
            happens(replicas)
            await asyncio.sleep(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    try:
        loop.run_until_complete(run())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.parametrize(("replicas", "leader"), [((1, 2, 3), 2), ((2, 1, 3), 2)])
def test_it_leaves_the_in_sync_replicas_whether_it_leads_or_follows(replicas: tuple[int, ...], leader: int) -> None:
    broker = Broker(*replicas)
    play(broker)
    found = broker.metadata.partition()
    assert (found.leader, found.leader_epoch, set(found.isr)) == (leader, 1, {2, 3})
    assert len(broker.asked) == 1, "what is on its way need not be asked for again"


def test_one_that_is_not_in_sync_asks_too_so_that_nothing_of_it_is_counted() -> None:
    broker = Broker(2, 1, 3)
    broker.metadata.submit(broker.metadata.isr_change(2, 3))
    play(broker)
    found = broker.metadata.partition()
    assert (found.leader, found.leader_epoch, found.isr) == (2, 1, (2, 3))


def test_what_is_refused_is_asked_again() -> None:
    broker = Broker(1, 2, 3, refusals=2)
    play(broker)
    assert len(broker.asked) == 3
    assert broker.metadata.partition().leader == 2


def test_the_only_copy_stays_until_another_one_is_in_sync(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(1, 2)
    broker.metadata.fence(2)
    seen: list[int] = []

    def returns(replicas: DamagedReplicas) -> None:
        seen.append(broker.metadata.partition().leader)
        broker.metadata.start(2)
        broker.metadata.submit(broker.metadata.isr_change(1, 2))

    play(broker, returns)
    assert seen == [BROKER]
    assert broker.metadata.partition().leader == 2
    assert caplog.text.count("the only copy") == 1


def test_an_eligible_replica_takes_over_though_it_is_not_in_sync() -> None:
    broker = Broker(1, 2, min_insync_replicas="2")
    broker.metadata.submit(broker.metadata.isr_change(1))
    play(broker)
    assert broker.metadata.partition().leader == 2


def test_the_next_damage_is_heard_of_after_a_replica_has_begun_anew() -> None:
    broker = Broker(2, 1, 3)

    def begins_anew(replicas: DamagedReplicas) -> None:
        broker.leader_epoch = 1
        broker.log.damage = ""

    def is_damaged_again(replicas: DamagedReplicas) -> None:
        assert broker.metadata.partition().leader_epoch == 1
        replicas.found(broker.log, "another bit")  # type: ignore[arg-type]

    play(broker, begins_anew, is_damaged_again)
    assert broker.metadata.partition().leader_epoch == 2


def leave_before_it_may_lead(broker: Broker, epoch: int | None = None) -> None:
    broker.own_epoch = epoch

    async def run() -> None:
        broker.metadata.refresh = lambda: asyncio.sleep(0)  # type: ignore[attr-defined]
        await DamagedReplicas(broker).leave_what_others_have()  # type: ignore[arg-type]

    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(run())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def all_down(**changes: Any) -> Broker:
    """Both replicas have died; broker 1 is registered again, with a log that may have lost its end."""
    broker = Broker(1, 2, min_insync_replicas="2", **changes)
    broker.metadata.fence(1, 2)
    broker.metadata.register(BROKER)
    return broker


def test_a_log_that_lost_its_end_gives_up_its_claim_to_be_complete() -> None:
    broker = all_down(refusals=1)
    assert broker.metadata.partition().eligible_leader_replicas == (1, 2)
    leave_before_it_may_lead(broker)
    assert broker.asked == []
    broker.log.is_short = True
    leave_before_it_may_lead(broker)
    assert broker.metadata.partition().eligible_leader_replicas == (2,)


def test_a_broker_whose_place_was_taken_does_not_ask_for_ever() -> None:
    broker = all_down()
    broker.log.is_short = True
    epoch = broker.broker_epoch
    broker.metadata.register(BROKER)
    with pytest.raises(KafkaError) as caught:
        leave_before_it_may_lead(broker, epoch)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_log_that_was_opened_with_damage_gives_it_up_too() -> None:
    broker = all_down()
    broker.log.damage = "a bit has flipped"
    leave_before_it_may_lead(broker)
    assert broker.metadata.partition().eligible_leader_replicas == (2,)


def test_the_only_complete_replica_keeps_its_claim_though_it_lost_its_end(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(1, 2)
    broker.metadata.fence(2, 1)
    broker.metadata.register(BROKER)
    broker.log.is_short = True
    leave_before_it_may_lead(broker)
    assert broker.asked == []
    assert "no other replica is complete" in caplog.text
