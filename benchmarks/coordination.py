"""Groups and transactions on Barnabas and on Apache Kafka, in one run on one machine: `make bench`.

The members of groups are plain connections (see `coordination_loads`), so that a thousand of them cost the client
little; transactions are librdkafka's. See `comparison` for how the brokers take turns.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from benchmarks import coordination_loads, loads
from benchmarks.comparison import compare, running
from benchmarks.report import Figure

TOPIC = "coordination"
LOAD_TIMEOUT = 120.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}

FIGURES = (
    Figure("groups", "1,000 groups of one member join and commit once", "s", False, 0.5),
    Figure("commits", "offset commits from 50 groups", "1/s", True, 1.0),
    Figure("commits_p99", "  their latency, p99", "ms", False, None),
    Figure("rebalance", "rebalance of 50 members, first join to stable", "ms", False, 0.5),
    Figure("transactions", "transactions of 100 records", "1/s", True, 1.0),
)


class Sizes(NamedTuple):
    """How much work a round is."""

    groups: int
    rebalances: int
    seconds: float


def measure(name: str, sizes: Sizes) -> dict[str, float]:
    """Start a broker, load it, stop it; its figures."""
    with running(name, SETTINGS) as server:
        prepared = getattr(server, "format_seconds", 0.0)

        def run(load: str, **arguments: int | float) -> dict[str, float]:
            module = coordination_loads.__name__
            return loads.run(module, load, LOAD_TIMEOUT, address=server.address, topic=TOPIC, **arguments)

        loads.create_topic(server.address, TOPIC, 8)
        run("groups", count=sizes.groups // 4)  # makes the internal topics, and warms up
        run("commits", groups=50, seconds=sizes.seconds / 2)
        run("rebalances", members=50, count=sizes.rebalances)
        run("transactions", seconds=sizes.seconds / 2)
        time.sleep(1)
        committed = run("commits", groups=50, seconds=sizes.seconds)
        return {
            "format": prepared,
            "groups": run("groups", count=sizes.groups)["seconds"],
            "commits": committed["commits_per_s"],
            "commits_p99": committed["p99_ms"],
            "rebalance": run("rebalances", members=50, count=sizes.rebalances)["median_ms"],
            "transactions": run("transactions", seconds=sizes.seconds)["transactions_per_s"],
        }


if __name__ == "__main__":
    compare(
        "coordination",
        FIGURES,
        measure,
        full=Sizes(groups=1000, rebalances=11, seconds=5),
        quick=Sizes(groups=1000, rebalances=3, seconds=2),
    )
