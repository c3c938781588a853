"""`barnabas up --brokers 3`: ready in one line, stopped by one signal, and what dies is reported."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cli.commands import run_barnabas, succeed_on
from tests.cluster.three_brokers import NUMBERS, living_brokers
from tests.peers import BarnabasServer, ZooKeeperServer, answers_metadata, eventually, free_port
from tests.yardstick import slowness

ARGUMENTS = ("--brokers", "3", "-o", "json")
READY_WITHIN_S = 2.0
READY_WITHIN_CPU_S = 1.5
STOPPED_WITHIN_S = 3.0


def ready_line(server: BarnabasServer) -> Any:
    return json.loads(server.data_dir.with_name(f"{server.data_dir.name}.stdout").read_text())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def refused(*arguments: str) -> str:
    done = run_barnabas("up", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_three_brokers_start_and_stop_with_one_command(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    with BarnabasServer(tmp_path / "data", arguments=ARGUMENTS, port=port) as server:
        ready = ready_line(server)
        assert ready["addresses"][0] == f"127.0.0.1:{port}"
        for address in ready["addresses"]:
            eventually(lambda at=address: living_brokers(at), set(NUMBERS))  # type: ignore[misc]
        server.process.send_signal(number)
        assert server.process.wait(60) == 0
    assert not any(is_running(pid) for pid in ready["broker_pids"])
    assert all((tmp_path / "data" / f"broker-{n}" / ".kafka_cleanshutdown").exists() for n in NUMBERS)


@pytest.mark.proof
def test_three_brokers_are_ready_within_two_seconds_and_stopped_within_three(tmp_path: Path) -> None:
    """The best of several."""
    ready_s, ready_cpu_s, stopped_s = [], [], []
    for number in range(3):
        with BarnabasServer(tmp_path / f"data-{number}", arguments=ARGUMENTS, new_interpreter=True) as server:
            ready_s.append(time.monotonic() - server.spawned_at)
            times = [psutil.Process(pid).cpu_times() for pid in (server.pid, *ready_line(server)["broker_pids"])]
            ready_cpu_s.append(sum(each.user + each.system for each in times))
            began = time.monotonic()
            assert server.stop() == 0
            stopped_s.append(time.monotonic() - began)
    assert min(ready_s) < READY_WITHIN_S * slowness(), ready_s
    assert min(ready_cpu_s) < READY_WITHIN_CPU_S * slowness(), ready_cpu_s
    assert min(stopped_s) < STOPPED_WITHIN_S * slowness(), stopped_s


def barnabas(address: str, *arguments: str, input: str = "") -> str:
    return succeed_on(address)(*arguments, input=input)


def test_they_come_back_with_what_they_had(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data", arguments=ARGUMENTS) as server:
        barnabas(server.address, "topic", "create", "orders", "--partitions", "6")
        barnabas(server.address, "produce", "orders", "-q", input="".join(f"{number}\n" for number in range(100)))
    with BarnabasServer(tmp_path / "data", arguments=ARGUMENTS) as server:
        described = json.loads(barnabas(server.address, "topic", "describe", "orders", "-o", "json"))
        assert [set(partition["replicas"]) for partition in described["partitions"]] == [set(NUMBERS)] * 6
        found = barnabas(server.address, "consume", "orders").split()
        assert sorted(map(int, found)) == list(range(100))


def test_a_bootstrap_list_may_name_a_broker_that_is_not_started(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data", arguments=ARGUMENTS) as server:
        *_, third = ready_line(server)["addresses"]
        barnabas(server.address, "produce", "orders", "-q", input="x\n")
    with BarnabasServer(tmp_path / "data", arguments=("--brokers", "2")) as server:
        assert "not all brokers of this directory are started" in server.log.read_text()
        bootstrap = f"{third},{server.address}"
        barnabas(bootstrap, "produce", "orders", "-q", input="y\n")
        assert barnabas(bootstrap, "consume", "orders") == "x\ny\n"


@pytest.mark.parametrize(
    ("arguments", "replicas", "min_isr"),
    [
        (("--brokers", "3"), 3, "2"),
        (("--brokers", "2"), 2, "1"),
        (("--brokers", "3", "--set", "default.replication.factor=1", "--set", "min.insync.replicas=1"), 1, "1"),
    ],
)
def test_new_topics_have_the_replicas_that_the_brokers_allow(
    tmp_path: Path, arguments: Sequence[str], replicas: int, min_isr: str
) -> None:
    with BarnabasServer(tmp_path / "data", arguments=arguments) as server:
        barnabas(server.address, "produce", "orders", "-q", input="x\n")
        described = json.loads(barnabas(server.address, "topic", "describe", "orders", "--all-configs", "-o", "json"))
    assert [len(partition["replicas"]) for partition in described["partitions"]] == [replicas]
    assert described["configs"]["min.insync.replicas"] == min_isr


def test_groups_and_transactions_are_kept_in_three_places(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data", arguments=ARGUMENTS) as server:
        bootstrap = ",".join(ready_line(server)["addresses"])
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 0})
        producer.init_transactions(60)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
        producer.begin_transaction()
        producer.produce("orders", b"x")
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        assert [each.offset for each in consumer.committed([TopicPartition("orders", 0)], 60)] == [1]
        consumer.close()
        listed = json.loads(barnabas(bootstrap, "topic", "list", "--internal", "-o", "json"))
    assert {row["topic"]: row["replication_factor"] for row in listed} == {
        "orders": 3,
        "__consumer_offsets": 3,
        "__transaction_state": 3,
    }


def test_they_share_zookeeper_where_it_is_named(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        arguments = (*ARGUMENTS, "--zookeeper", f"{zookeeper.address}/cluster")
        with BarnabasServer(tmp_path / "data", arguments=arguments) as server:
            for address in ready_line(server)["addresses"]:
                eventually(lambda at=address: living_brokers(at), set(NUMBERS))  # type: ignore[misc]
    assert not (tmp_path / "data" / "metadata.sqlite").exists()


@pytest.mark.parametrize("restart", [False, True])
def test_a_broker_that_dies_is_reported_and_the_rest_go_on(tmp_path: Path, restart: bool) -> None:
    arguments = [*ARGUMENTS, *(["--restart"] if restart else [])]
    with BarnabasServer(tmp_path / "data", arguments=arguments) as server:
        ready = ready_line(server)
        first, second, third = ready["addresses"]
        os.kill(ready["broker_pids"][1], signal.SIGKILL)
        eventually(lambda: 'broker has died broker=2 how="was killed by SIGKILL"' in server.log.read_text(), True)
        if restart:  # after a second, in which the others need not have noticed
            eventually(lambda: "broker serves again broker=2" in server.log.read_text(), True)
            eventually(lambda: living_brokers(third), {1, 2, 3})
            eventually(lambda: answers_metadata(second), True)
        else:
            for address in (first, third):
                eventually(lambda at=address: living_brokers(at), {1, 3})  # type: ignore[misc]
            assert not answers_metadata(second)


def test_brokers_do_not_outlive_the_command(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data", arguments=ARGUMENTS) as server:
        pids = ready_line(server)["broker_pids"]
        server.kill()
        eventually(lambda: [is_running(pid) for pid in pids], [False, False, False])


def first_of_two_free_ports() -> int:
    for _ in range(100):
        port = free_port()
        with socket.socket() as following:
            try:
                following.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two free ports in a row in a hundred tries")


def test_a_port_that_is_taken_is_left_to_its_owner(tmp_path: Path) -> None:
    first = first_of_two_free_ports()
    taken = first + 1
    with BarnabasServer(tmp_path / "other", port=taken) as other:
        with BarnabasServer(tmp_path / "data", arguments=ARGUMENTS, port=first) as server:
            addresses = ready_line(server)["addresses"]
        assert other.address not in addresses
        assert "in use" in refused("--brokers", "3", "--data-dir", str(tmp_path / "late"), "--port", str(taken))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("node.id=5", "node.id"), ("listeners=PLAINTEXT://:9092", "--port"), ("log.retention.mss=5", "log.retention.ms")],
)
def test_what_several_brokers_cannot_have_is_refused(tmp_path: Path, setting: str, expected: str) -> None:
    line = refused("--brokers", "3", "--port", "0", "--data-dir", str(tmp_path / "data"), "--set", setting)
    assert line.startswith("barnabas: ")
    assert expected in line
    assert not (tmp_path / "data").exists()


def test_one_broker_and_several_do_not_mix_their_directories(tmp_path: Path) -> None:
    for name, first, then in (("one", (), ARGUMENTS), ("three", ARGUMENTS, ())):
        with BarnabasServer(tmp_path / name, arguments=first):
            pass
        assert str(tmp_path / name) in refused("--data-dir", str(tmp_path / name), "--port", "0", *then)


@pytest.mark.parametrize("what", ["cluster.id", "node.id"])
def test_a_directory_of_another_cluster_or_broker_is_refused(tmp_path: Path, what: str) -> None:
    with BarnabasServer(tmp_path / "data", arguments=ARGUMENTS):
        pass
    meta = tmp_path / "data" / "broker-2" / "meta.properties"
    changed = "".join(
        f"{what}=77\n" if line.startswith(f"{what}=") else line for line in meta.read_text().splitlines(keepends=True)
    )
    meta.write_text(changed)
    line = refused("--data-dir", str(tmp_path / "data"), "--port", "0", "--brokers", "3")
    assert f"{meta} says {what}=77" in line
