"""Ten thousand interleavings of producers, zombies, crashes and a bad network; `transaction_world` says what must hold.

A seed that fails is run again by `World(seed).run(STEPS)`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.coordinator.transaction_world import Data, World

STEPS = 70


@pytest.mark.parametrize("part", range(10))
def test_no_interleaving_breaks_a_transaction(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(part * 1000, part * 1000 + 1000):
        world = World(seed)
        try:
            world.run(STEPS)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        seen["committed"] += sum(world.decided.values())
        seen["aborted"] += len(world.decided) - sum(world.decided.values())
        seen["new producer id"] += world.next_producer_id > 2
        seen["records"] += sum(isinstance(entry, Data) for each in world.partitions for entry in each.log)
    # or nothing was tried
    assert seen["committed"] > 200
    assert seen["aborted"] > 200
    assert seen["records"] > 1000
    assert seen["new producer id"] > 50
