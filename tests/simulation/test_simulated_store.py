from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from barnabas.coordination.memory import Faults, MemoryMetadata
from barnabas.coordination.store import Claim, Done, StoreUnavailable, Unknown
from tests.simulation.simulated_store import SESSION_S, SimulatedStore
from tests.simulation.virtual_loop import VirtualLoop

Scenario = Callable[[MemoryMetadata, SimulatedStore, VirtualLoop], Awaitable[None]]


def play(scenario: Scenario) -> None:
    """With a store that broker 1 has opened, and in which it holds the claim."""
    loop = VirtualLoop()

    async def main() -> None:
        metadata = MemoryMetadata()
        store = SimulatedStore(metadata, 1, Faults(random.Random(0)), loop, is_cut=False)
        await store.open()
        assert await store.campaign(0) == 1
        await scenario(metadata, store, loop)

    loop.run_until_complete(main())
    loop.close()


async def sleep(loop: VirtualLoop, seconds: float) -> None:
    done = loop.create_future()
    loop.call_later(seconds, done.set_result, None)
    await done


def test_who_is_cut_off_gets_no_answers() -> None:
    async def scenario(metadata: MemoryMetadata, store: SimulatedStore, loop: VirtualLoop) -> None:
        store.cut()
        with pytest.raises(StoreUnavailable):
            await store.claim()
        assert isinstance(await store.append(1, 0, b"id", [b"record"]), Unknown)
        store.mend()
        assert isinstance(await store.append(1, 0, b"id", [b"record"]), Done)

    play(scenario)


def test_a_session_that_is_cut_off_for_long_expires_and_comes_back_without_its_claim() -> None:
    async def scenario(metadata: MemoryMetadata, store: SimulatedStore, loop: VirtualLoop) -> None:
        store.cut()
        await sleep(loop, SESSION_S / 2)
        assert metadata.claim == Claim(1, 1)
        await sleep(loop, SESSION_S)
        assert metadata.claim == Claim(1, None)
        store.mend()
        await store.watch()
        assert await store.claim() == Claim(1, None)

    play(scenario)


def test_the_store_learns_of_a_power_cut_when_the_session_expires() -> None:
    async def scenario(metadata: MemoryMetadata, store: SimulatedStore, loop: VirtualLoop) -> None:
        store.abandon(power_cut=True)
        assert metadata.claim == Claim(1, 1)
        await sleep(loop, SESSION_S + 1)
        assert metadata.claim == Claim(1, None)

    play(scenario)


def test_the_store_learns_of_a_killed_process_at_once() -> None:
    async def scenario(metadata: MemoryMetadata, store: SimulatedStore, loop: VirtualLoop) -> None:
        store.abandon(power_cut=False)
        assert metadata.claim == Claim(1, None)

    play(scenario)


def test_the_end_of_an_old_session_does_not_take_the_claim_of_the_next() -> None:
    async def scenario(metadata: MemoryMetadata, store: SimulatedStore, loop: VirtualLoop) -> None:
        store.abandon(power_cut=True)
        successor = SimulatedStore(metadata, 1, Faults(random.Random(0)), loop, is_cut=False)
        await successor.open()
        assert await successor.campaign(1) == 2
        await sleep(loop, SESSION_S + 1)
        assert metadata.claim == Claim(2, 1)

    play(scenario)
