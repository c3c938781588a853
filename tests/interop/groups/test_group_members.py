"""A group of processes with every client: a member joins late, one is killed, the others leave."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
from confluent_kafka import ConsumerGroupState

from tests import peers
from tests.interop.groups.members import SESSION_MS, Group
from tests.peers import ROOT

CLIENTS = ROOT / "tests" / "interop" / "clients"
TIMES = {"session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": "500"}
PYTHON_TIMES = {"session_timeout_ms": str(SESSION_MS)}
OUR_TIMES = {**PYTHON_TIMES, "heartbeat_interval_ms": "500"}


class Client(NamedTuple):
    """A kind of member: the program, and the settings that its library is given."""

    program: str
    settings: dict[str, str]


MEMBERS = {
    "confluent-range": Client("confluent", {"partition.assignment.strategy": "range", **TIMES}),
    "confluent-roundrobin": Client("confluent", {"partition.assignment.strategy": "roundrobin", **TIMES}),
    "confluent-cooperative": Client("confluent", {"partition.assignment.strategy": "cooperative-sticky", **TIMES}),
    "confluent-uniform": Client("confluent", {"group.protocol": "consumer", "group.remote.assignor": "uniform"}),
    "confluent-server-range": Client("confluent", {"group.protocol": "consumer", "group.remote.assignor": "range"}),
    "aiokafka-range": Client("aiokafka", {"partition_assignment_strategy": "range", **PYTHON_TIMES}),
    "aiokafka-sticky": Client("aiokafka", {"partition_assignment_strategy": "sticky", **PYTHON_TIMES}),
    "kafka-python-range": Client("kafka_python", {"partition_assignment_strategy": "range", **PYTHON_TIMES}),
    "kafka-python-cooperative": Client(
        "kafka_python", {"partition_assignment_strategy": "cooperative-sticky", **PYTHON_TIMES}
    ),
    "barnabas-cooperative": Client("barnabas", {"partition_assignment_strategy": "cooperative-sticky", **OUR_TIMES}),
    "barnabas-consumer": Client("barnabas", {"group_protocol": "consumer"}),
    "kafkajs": Client("kafkajs", {"sessionTimeout": str(SESSION_MS)}),
    "franz-go-classic": Client("franz_go", {"session.timeout": f"{SESSION_MS}ms"}),
    "franz-go-consumer": Client("franz_go", {"protocol": "consumer"}),
    "java-classic": Client("java", TIMES),
    "java-consumer": Client("java", {"group.protocol": "consumer"}),
}


# Of a library's own assignors a broker sees only the name: one for each protocol is enough to judge the broker.
MORE_ASSIGNORS = {"confluent-range", "confluent-roundrobin", "aiokafka-range", "kafka-python-cooperative"}


@pytest.fixture(scope="session")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [str(peers.go_build(CLIENTS / "franz_go", tmp_path_factory.mktemp("go") / "member"))]


@pytest.fixture(scope="session")
def java() -> list[str]:
    return peers.java_command(CLIENTS / "Member.java")


@pytest.fixture
def command(client: Client, request: pytest.FixtureRequest) -> list[str]:
    """The command line of the client's program, without its arguments."""
    if client.program in ("franz_go", "java"):  # built once, and only if asked for
        built: list[str] = request.getfixturevalue(client.program)
        return built
    if client.program == "kafkajs":
        return peers.node_command(CLIENTS / "kafkajs_member.js")
    return [sys.executable, "-m", f"tests.interop.clients.{client.program}_member"]


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, id=name, marks=[pytest.mark.proof] if name in MORE_ASSIGNORS else [])
        for name, client in MEMBERS.items()
    ],
)
def test_members_come_die_and_go_while_every_record_is_read_and_no_partition_owned_twice(
    client: Client, command: list[str], new_group: Callable[[int], Group]
) -> None:
    group = new_group(6)
    group.start("first", command, client.settings)
    group.settle({"first": 6})
    group.start("second", command, client.settings)
    group.settle({"first": 3, "second": 3})

    group.produce(50)
    group.start("third", command, client.settings)
    group.settle({"first": 2, "second": 2, "third": 2})

    group.produce(50)
    group.kill("first")
    group.settle({"second": 3, "third": 3})

    group.produce(50)
    group.read_all()
    group.stop("second")
    group.settle({"third": 6})
    group.stop("third")
    assert group.owners() == {}
    assert group.state() == ConsumerGroupState.EMPTY
