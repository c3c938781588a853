"""Three brokers of Barnabas and three of Apache Kafka, in one run on one machine: `make bench`.

Topics have three replicas and producers ask for acks=all. Each cluster is warmed up and put under the same loads; see
`comparison` for how they take turns.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import psutil

from benchmarks import cluster_loads, loads
from benchmarks.clusters import Cluster, running_cluster
from benchmarks.comparison import compare
from benchmarks.report import Figure

LOAD_TIMEOUT = 240.0
MANY_PARTITIONS = 2_000
PACE = 1_000


class Sizes(NamedTuple):
    """How much work a round is."""

    records: int
    paced_seconds: float


FULL = Sizes(records=200_000, paced_seconds=10)
QUICK = Sizes(records=50_000, paced_seconds=3)

FIGURES = (
    Figure("produce_one", "produce 1 KB to one partition", "MB/s", True, 2.0),
    Figure("produce_twelve", "produce 1 KB to twelve partitions", "MB/s", True, 2.0),
    Figure("paced_p50", "requests of one record at 1,000/s, p50", "ms", False, None),
    Figure("paced_p99", "  their latency, p99", "ms", False, 0.7),
    Figure("create", "2,000 partitions created", "s", False, 0.5),
    Figure("usable", "  and every tenth has taken a record", "s", False, 0.5),
    Figure("outage", "no acknowledged write after kill -9 of a leader", "s", False, 0.3),
    Figure("start", "start until a client sees three brokers", "s", False, 0.2),
    Figure("memory_idle", "resident memory of all brokers, idle", "MB", False, 0.2),
    Figure("memory_loaded", "resident memory of all brokers, after the load", "MB", False, 0.2),
)


def measure(name: str, sizes: Sizes) -> dict[str, float]:
    """Start a cluster, load it, kill a leader, stop the rest; its figures."""
    with running_cluster(name) as cluster:

        def run(load: str, **arguments: object) -> dict[str, float]:
            module = loads.__name__ if load in loads.LOADS else cluster_loads.__name__
            return loads.run(module, load, LOAD_TIMEOUT, address=cluster.bootstrap, **arguments)

        time.sleep(1)
        memory_idle = _memory(cluster)
        for topic, partitions in (("one", 1), ("twelve", 12)):
            run("create", topic=topic, partitions=partitions)
        run("produce", topic="one", count=sizes.records // 4, value_bytes=1024)
        run("produce", topic="twelve", count=sizes.records // 4, value_bytes=1024, partitions=12)
        run("paced", topic="one", per_second=PACE, seconds=sizes.paced_seconds / 2)

        one = run("produce", topic="one", count=sizes.records, value_bytes=1024)
        twelve = run("produce", topic="twelve", count=sizes.records, value_bytes=1024, partitions=12)
        time.sleep(1)
        paced = run("paced", topic="one", per_second=PACE, seconds=sizes.paced_seconds)
        memory_loaded = _memory(cluster)
        many = run("create", topic="many", partitions=MANY_PARTITIONS)
        run("delete", topic="many")
        time.sleep(3)
        return {
            "format": cluster.format_seconds,
            "start": cluster.start_seconds,
            "produce_one": one["mb_per_s"],
            "produce_twelve": twelve["mb_per_s"],
            "paced_p50": paced["p50_ms"],
            "paced_p99": paced["p99_ms"],
            "create": many["seconds"],
            "usable": many["usable_seconds"],
            "outage": run("outage", topic="one", pids=cluster.pids)["seconds"],
            "memory_idle": memory_idle,
            "memory_loaded": memory_loaded,
        }


def _memory(cluster: Cluster) -> float:
    """Megabytes resident in all that was started."""
    started = [psutil.Process(server.pid) for server in cluster.servers]
    return sum(each.memory_info().rss for one in started for each in (one, *one.children(recursive=True))) / 1e6


if __name__ == "__main__":
    compare("cluster", FIGURES, measure, FULL, QUICK)
