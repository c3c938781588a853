"""Our members in one classic group with Java's, confluent-kafka's and aiokafka's: any of them may be the leader."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import peers
from tests.clients.group_readers import create_topic
from tests.interop.groups.members import SESSION_MS, Group
from tests.peers import ROOT

PARTITIONS = 12
TIMES = {"session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": "500"}
OUR_TIMES = {"session_timeout_ms": str(SESSION_MS), "heartbeat_interval_ms": "500"}
JAVA = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
Start = Callable[[str, str], None]


@pytest.fixture(scope="session")
def java_member() -> list[str]:
    return peers.java_command(ROOT / "tests" / "interop" / "clients" / "Member.java")


@pytest.fixture
def group(group_cluster: str, tmp_path: Path) -> Iterator[Group]:
    group = Group(group_cluster, create_topic(group_cluster, PARTITIONS), PARTITIONS, tmp_path)
    yield group
    group.end()


@pytest.fixture
def start(group: Group, java_member: list[str]) -> Start:
    """Starts members of the group that share one assignor."""

    def start(member: str, assignor: str) -> None:
        settings = {
            "ours": {"partition_assignment_strategy": assignor, **OUR_TIMES},
            "java": {"partition.assignment.strategy": JAVA[assignor], **TIMES},
            "confluent": {"partition.assignment.strategy": assignor, **TIMES},
            "aiokafka": {"partition_assignment_strategy": assignor, "session_timeout_ms": str(SESSION_MS)},
        }
        module = {"ours": "barnabas_member"}.get(member, f"{member}_member")
        python = [sys.executable, "-m", f"tests.interop.clients.{module}"]
        group.start(member, java_member if member == "java" else python, settings[member])

    return start


MIXTURES = {
    "range": ["java", "confluent", "aiokafka"],
    "cooperative-sticky": ["java", "confluent"],
}


@pytest.mark.parametrize("assignor", MIXTURES)
def test_members_of_different_clients_rebalance_together(assignor: str, group: Group, start: Start) -> None:
    others = MIXTURES[assignor]
    start("ours", assignor)
    group.settle({"ours": PARTITIONS})
    for other in others:
        start(other, assignor)
    together = ["ours", *others]
    group.settle(dict.fromkeys(together, PARTITIONS // len(together)))

    group.produce(30)
    group.stop("ours")
    group.settle(dict.fromkeys(others, PARTITIONS // len(others)))

    start("ours", assignor)
    group.settle(dict.fromkeys(together, PARTITIONS // len(together)))
    group.produce(30)
    group.read_all()
