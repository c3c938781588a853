"""`barnabas cluster` on running brokers: describe, health, and reassignments from their plan to their end."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from barnabas.cli.cluster_state import health, look, min_in_sync
from barnabas.client.admin.configs import Configs, ConfigSource, ResourceType
from barnabas.client.admin.topics import Topics
from barnabas.client.client import Client, connect
from barnabas.client.metadata import PartitionInfo
from barnabas.client.producer import Producer
from tests.cli.commands import run_on
from tests.cluster.three_brokers import NUMBERS, Cluster, three_brokers
from tests.peers import barnabas_command, eventually

ADDED = 4
RACK = "north"
TIMEOUT_S = 60
RECORDS = 300
T = TypeVar("T")
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, and a fourth one that was added later."""
    settings = {"default.replication.factor": "3", "broker.heartbeat.interval.ms": "500", "broker.rack": RACK}
    with three_brokers(tmp_path_factory.mktemp("cluster"), settings) as running:
        running.start(ADDED)
        yield running


def barnabas(cluster: Cluster, *arguments: str, input: str = "") -> Done:
    return run_on(cluster.bootstrap)(*arguments, input=input)


def ok(cluster: Cluster, *arguments: str, input: str = "") -> str:
    done = barnabas(cluster, *arguments, input=input)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer(cluster: Cluster, *arguments: str) -> Any:
    return json.loads(ok(cluster, *arguments, "-o", "json"))


def with_client(cluster: Cluster, work: Callable[[Client], Awaitable[T]]) -> T:
    """What a command is not needed for."""

    async def session() -> T:
        async with asyncio.timeout(TIMEOUT_S), connect(cluster.bootstrap) as client:
            return await work(client)

    return asyncio.run(session())


def topic_on(cluster: Cluster, topic: str, assignment: list[list[int]], *, value_bytes: int = 10) -> list[str]:
    """A topic with these replicas and some records, whose values are told."""
    values = [f"{number}".rjust(value_bytes, "x") for number in range(RECORDS)]

    async def work(client: Client) -> None:
        await Topics(client).create(topic, assignment=assignment)
        async with Producer(client) as producer:
            for value in values:
                producer.post(topic, value.encode())

    with_client(cluster, work)
    return values


def partitions(cluster: Cluster, topic: str) -> tuple[PartitionInfo, ...]:
    return with_client(cluster, lambda client: Topics(client).describe(topic)).partitions


def replicas(cluster: Cluster, topic: str) -> list[list[int]]:
    return [list(partition.replicas) for partition in partitions(cluster, topic)]


def are_in_sync(cluster: Cluster, topic: str) -> bool:
    return all(set(partition.isr) == set(partition.replicas) for partition in partitions(cluster, topic))


def own_settings(cluster: Cluster, topic: str) -> set[str]:
    entries = with_client(cluster, lambda client: Configs(client).describe(ResourceType.TOPIC, topic))
    return {entry.name for entry in entries.values() if entry.source is ConfigSource.TOPIC}


# describe and health


def test_describe_shows_brokers_controller_and_counts(cluster: Cluster, topic_name: str) -> None:
    ok(cluster, "topic", "create", topic_name, "-p", "4")
    found = answer(cluster, "cluster", "describe")
    assert [row["broker"] for row in found["brokers"]] == [*NUMBERS, ADDED]
    assert [row["address"] for row in found["brokers"]] == [cluster.address(n) for n in (*NUMBERS, ADDED)]
    assert [row["broker"] for row in found["brokers"] if row["controller"]] == [found["controller"]]
    assert sum(row["leaders"] for row in found["brokers"]) == found["partitions"]
    heading, columns, *rows = ok(cluster, "cluster", "describe").splitlines()
    assert heading.startswith(f"cluster {found['cluster_id']} ")
    assert columns.split() == ["BROKER", "ADDRESS", "RACK", "CONTROLLER", "STATE", "LEADERS", "REPLICAS", "IN", "SYNC"]
    assert [row.split()[2] for row in rows] == [RACK] * 4


def test_health_tells_of_a_broker_that_died_until_it_is_back(tmp_path: Path, topic_name: str) -> None:
    async def troubles(client: Client) -> tuple[list[int], list[int]]:
        state = await look(client)
        found = health(state, await min_in_sync(client, state))
        return found["brokers"]["fenced"], [
            len(found[kind]) for kind in ("under_replicated", "under_min_isr", "offline")
        ]

    with three_brokers(tmp_path, {"default.replication.factor": "3", "min.insync.replicas": "3"}) as cluster:
        ok(cluster, "topic", "create", topic_name, "-p", "3")
        assert ok(cluster, "cluster", "health") == "healthy: 3 brokers, 3 partitions\n"
        cluster.kill(2)
        eventually(lambda: with_client(cluster, troubles), ([2], [3, 3, 0]))

        done = barnabas(cluster, "cluster", "health")
        assert done.returncode == 1
        assert done.stdout.startswith("not healthy: 2 brokers alive, 3 partitions\nbroker 2 is fenced\n")
        assert "3 partitions with fewer in-sync replicas than min.insync.replicas:\nTOPIC " in done.stdout
        told = json.loads(barnabas(cluster, "cluster", "health", "-o", "json").stdout)
        assert told["brokers"] == {"alive": [1, 3], "fenced": [2], "missing": []}
        described = answer(cluster, "topic", "describe", topic_name)
        assert [partition["elr"] for partition in described["partitions"]] == [[2], [2], [2]]

        forgotten = barnabas(cluster, "cluster", "forget", "2")
        assert forgotten.returncode == 1
        assert "broker 2 has replicas of 3 partitions; first `barnabas cluster reassign --drain 2`" in forgotten.stderr

        cluster.start(2)
        eventually(lambda: barnabas(cluster, "cluster", "health").returncode, 0)


def test_a_broker_that_is_gone_is_forgotten(cluster: Cluster) -> None:
    gone = 5
    cluster.start(gone)
    alive = barnabas(cluster, "cluster", "forget", str(gone))
    assert alive.returncode == 1
    assert "broker 5 is alive; drain it and stop it first" in alive.stderr
    cluster.stop(gone)
    assert ok(cluster, "cluster", "forget", str(gone)) == "forgot broker 5\n"
    assert gone not in [row["broker"] for row in answer(cluster, "cluster", "describe")["brokers"]]


def test_colours_are_for_terminals_alone(cluster: Cluster) -> None:
    assert "\x1b" not in ok(cluster, "cluster", "describe")
    assert "\x1b[1mBROKER" in on_a_terminal(cluster, "cluster", "describe")


def on_a_terminal(cluster: Cluster, *arguments: str) -> str:
    """What a command shows to people."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "BARNABAS_BOOTSTRAP_SERVER": cluster.bootstrap, "TERM": "xterm", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(barnabas_command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs,
                          env=environment) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        try:
            while chunk := _read(ours):
                shown += chunk
        finally:
            process.kill()
            os.close(ours)
    return shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


# reassignments


def test_a_new_broker_gets_its_share(cluster: Cluster, tmp_path: Path, topic_name: str) -> None:
    values = topic_on(cluster, topic_name, [[1, 2], [2, 3], [3, 1], [1, 3]])
    plan = tmp_path / "plan.json"
    plan.write_text(ok(cluster, "cluster", "reassign", "--topic", topic_name, "--dry-run", "-o", "json"))
    assert replicas(cluster, topic_name) == [[1, 2], [2, 3], [3, 1], [1, 3]]

    done = barnabas(cluster, "cluster", "reassign", "--plan", str(plan), "--yes")
    assert done.returncode == 0, done.stderr
    moved = json.loads(plan.read_text())["partitions"]
    assert f"\nmoved {len(moved)} partition" in done.stdout
    assert done.stderr.endswith(f"{len(moved)} of {len(moved)} partitions moved\n")
    wanted = [entry["replicas"] for entry in moved]
    eventually(lambda: [replicas(cluster, topic_name)[entry["partition"]] for entry in moved], wanted)
    assert any(ADDED in each for each in wanted)
    eventually(lambda: are_in_sync(cluster, topic_name), True)
    assert sorted(ok(cluster, "consume", topic_name).split()) == sorted(values)


def test_a_drained_broker_has_nothing_left_and_the_limit_on_speed_is_gone(cluster: Cluster, topic_name: str) -> None:
    topic_on(cluster, topic_name, [[4, 1], [2, 4], [3, 4]])
    ok(cluster, "cluster", "reassign", "--topic", topic_name, "--drain", "4", "--throttle", "100000000", "--yes")

    def is_drained() -> bool:
        return all(ADDED not in each and len(each) == 2 for each in replicas(cluster, topic_name))

    eventually(is_drained, True)
    eventually(lambda: are_in_sync(cluster, topic_name), True)
    eventually(lambda: own_settings(cluster, topic_name), set[str]())


def test_the_replication_factor_grows_and_shrinks(cluster: Cluster, topic_name: str) -> None:
    topic_on(cluster, topic_name, [[1], [2], [3]])
    for factor in (3, 2):
        ok(cluster, "cluster", "reassign", "--topic", topic_name, "--replication-factor", str(factor), "-y")
        eventually(lambda: [len(each) for each in replicas(cluster, topic_name)], [factor] * 3)
        eventually(lambda: are_in_sync(cluster, topic_name), True)


def test_what_cannot_be_done_is_refused_before_anything_is_done(
    cluster: Cluster, tmp_path: Path, topic_name: str
) -> None:
    topic_on(cluster, topic_name, [[1, 2], [2, 3]])
    file = tmp_path / "plan.json"
    entries = [{"topic": topic_name, "partition": n, "replicas": each} for n, each in enumerate([[3, 1], [2, 9]])]
    file.write_text(json.dumps({"version": 1, "partitions": entries}))
    refusals = {
        ("--plan", str(file)): f"there is no broker 9 (there are 1, 2, 3, 4), but {topic_name}-1 is to go there",
        ("--plan", "no-such-file"): "cannot read plan no-such-file",
        ("--drain", "9"): "there is no broker 9",
        ("-t", topic_name, "-r", "5"): f"{topic_name} cannot have 5 replicas on 4 brokers",
        ("-t", topic_name, "-r", "1"): "nothing was changed; --yes goes ahead without asking",
    }
    for arguments, expected in refusals.items():
        done = barnabas(cluster, "cluster", "reassign", *arguments)
        assert done.returncode == 1
        assert expected in done.stderr.splitlines()[-1]
    assert replicas(cluster, topic_name) == [[1, 2], [2, 3]]
    assert barnabas(cluster, "cluster", "reassign", "--watch", "--cancel").returncode == 2
    done = barnabas(cluster, "topic", "create", "wide", "-r", "5")
    assert "factor of 5 cannot be reached because only 4 broker(s) are registered" in done.stderr


def test_a_reassignment_outlives_its_watcher_and_can_be_called_off(cluster: Cluster, topic_name: str) -> None:
    topic_on(cluster, topic_name, [[1, 2]], value_bytes=5000)
    slowly = ("--topic", topic_name, "--drain", "1", "--throttle", "1000", "--yes")
    process = subprocess.Popen(
        barnabas_command("cluster", "reassign", *slowly, "-b", cluster.bootstrap),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "0 of 1 partitions moved\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the reassignment goes on; `barnabas cluster reassign --watch` follows it" in told

    again = barnabas(cluster, "cluster", "reassign")
    assert again.returncode == 1
    assert "a reassignment of 1 partition is under way" in again.stderr
    watched = barnabas(cluster, "cluster", "reassign", "--watch", "--timeout", "0.5")
    assert watched.returncode == 1
    assert "not at its end after 0.5 s and goes on" in watched.stderr
    throttled = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
    eventually(lambda: own_settings(cluster, topic_name), throttled)

    assert ok(cluster, "cluster", "reassign", "--cancel") == "called off the reassignment of 1 partition\n"
    eventually(lambda: [sorted(each) for each in replicas(cluster, topic_name)], [[1, 2]])
    eventually(lambda: own_settings(cluster, topic_name), set[str]())
    assert ok(cluster, "cluster", "reassign", "--cancel") == "nothing is moving\n"


def test_a_terminal_has_a_progress_bar(cluster: Cluster, topic_name: str) -> None:
    topic_on(cluster, topic_name, [[1, 2], [2, 3]])
    shown = on_a_terminal(cluster, "cluster", "reassign", "-t", topic_name, "--drain", "2", "--yes")
    assert "moving partitions" in shown
    assert "2/2" in shown
    assert "moved 2 partitions" in shown
