"""What a broker's part in the cluster, its coordinators and the care of its logs look like when it is scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.storage.cleaner import Totals
from barnabas.storage.scrubber import ScrubTotals

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.coordinators import Coordinator


class StateSample(NamedTuple):
    """Without anything to coordinate or to compact, all of it is empty."""

    shards: Mapping[tuple[str, str], int] = {}
    """By coordinator and whether they are loaded."""
    groups: Mapping[tuple[str, str], int] = {}
    """By type and state."""
    transactional_ids: Mapping[str, int] = {}
    """By the state of their transaction."""
    compaction: Totals = Totals()
    uncleanable_logs: int = 0
    is_controller: bool = False
    unclean_elections: int = 0
    scrub: ScrubTotals = ScrubTotals()
    damaged_logs: int = 0
    renewed_logs: int = 0


NOTHING = StateSample()


def sample_state(broker: Broker) -> StateSample:
    """Count; runs on the loop."""
    cleaner = broker.manager.cleaner
    return StateSample(
        {**_shards("group", broker.groups), **_shards("transaction", broker.transactions)},
        Counter(
            (group.group_type.value, group.state_name)
            for driver in broker.groups.drivers()
            if driver.shard is not None
            for group in driver.shard.groups.values()
        ),
        Counter(
            transaction.state.label
            for driver in broker.transactions.drivers()
            if driver.shard is not None
            for transaction in driver.shard.transactions.values()
        ),
        cleaner.totals,
        cleaner.uncleanable_logs,
        broker.metadata.is_controller,
        broker.metadata.unclean_elections,
        broker.manager.scrubber.totals,
        len(broker.replicas.damaged()),
        broker.replicas.renewals,
    )


def _shards(name: str, coordinator: Coordinator[Any]) -> dict[tuple[str, str], int]:
    drivers = coordinator.drivers()
    loaded = sum(driver.shard is not None for driver in drivers)
    return {(name, "loaded"): loaded, (name, "loading"): len(drivers) - loaded}
