"""Several brokers on one machine: what is set alike for all of them, and what no two can share."""

from __future__ import annotations

from pathlib import Path

OWN_KEYS = ("node.id", "broker.id", "log.dirs", "log.dir", "listeners", "advertised.listeners")
"""What no two brokers can share."""


def shared_settings(place: Path, count: int) -> dict[str, str]:
    """For every one of `count` brokers whose data is below `place`.

    Topics have as many replicas as there are brokers, three at the most; of three, two have to have every record.
    """
    replicas = min(count, 3)
    in_sync = max(1, replicas - 1)
    return {
        "barnabas.metadata.file": str(place / "metadata.sqlite"),
        "group.initial.rebalance.delay.ms": "0",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
    }


def broker_dir(place: Path, number: int) -> Path:
    return place / f"broker-{number}"
