"""A cluster in a test: there at once, as it was asked for, and gone without a trace."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import psutil
import pytest

from barnabas.core.config import ConfigError
from barnabas.testing import Cluster, ClusterError
from barnabas.testing.cluster import keep_warden
from tests.peers import answers_metadata, eventually
from tests.yardstick import slowness

READY_WITHIN_S = 0.5


def write_and_read(bootstrap: str, topic: str) -> bytes | None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"hello")
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(60)
        return message.value() if message is not None else None
    finally:
        consumer.close()


@pytest.mark.parametrize("in_process", [False, True], ids=["process", "thread"])
def test_another_client_writes_and_reads(in_process: bool) -> None:
    with Cluster(in_process=in_process) as cluster:
        assert write_and_read(cluster.bootstrap, cluster.create_topic()) == b"hello"


@pytest.mark.parametrize("in_process", [False, True], ids=["process", "thread"])
def test_async_with_leaves_the_loop_free_while_it_starts(in_process: bool) -> None:
    async def starting() -> tuple[int, int]:
        cluster = Cluster(in_process=in_process)
        entering = asyncio.create_task(cluster.__aenter__())
        turns = 0
        while not entering.done():
            turns += 1
            await asyncio.sleep(0)
        try:
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
                metadata = await producer.send_and_wait("orders", b"one")
        finally:
            await entering
            await cluster.__aexit__(None, None, None)
        return int(metadata.offset), turns

    offset, turns = asyncio.run(starting())
    assert offset == 0
    assert turns > 20


@pytest.mark.proof
def test_a_cluster_is_ready_within_half_a_second(tmp_path: Path) -> None:
    """From nothing, imports included. The best of several, and on a busy machine the time on the processors counts."""
    script = (
        "import time; began = time.monotonic(), time.process_time(); from barnabas.testing import Cluster;"
        "cluster = Cluster().__enter__(); took = time.monotonic() - began[0]; ours = time.process_time() - began[1];"
        "import psutil; others = [each.cpu_times() for each in psutil.Process().children(recursive=True)];"
        "print(took, ours + sum(each.user + each.system for each in others)); cluster.close()"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    within_s = READY_WITHIN_S * slowness()
    took_s = []
    for _ in range(15):
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        took_s.append(min(map(float, done.stdout.split())))
        if took_s[-1] < within_s:
            break
    assert min(took_s) < within_s


def wardens() -> list[psutil.Process]:
    """The processes that brokers of this process are forked from."""
    return [each for each in psutil.Process().children() if "barnabas.testing.warden" in each.cmdline()]


def test_the_next_cluster_is_forked_from_what_is_loaded_already() -> None:
    with keep_warden(), Cluster():
        [warden] = wardens()
        [first] = warden.children()
        with Cluster():
            assert wardens() == [warden]
            [second] = set(warden.children()) - {first}
            assert second.cmdline() == warden.cmdline()  # nothing else was executed


@pytest.mark.proof
def test_the_next_cluster_is_ready_within_a_quarter_of_a_second() -> None:
    with keep_warden(), Cluster():
        took_s = []
        for _ in range(10):
            began = time.monotonic()
            with Cluster():
                took_s.append(time.monotonic() - began)
        assert min(took_s) < READY_WITHIN_S / 2 * slowness()


def test_three_brokers_keep_three_copies() -> None:
    with Cluster(3) as cluster:
        topic = cluster.create_topic(partitions=3)
        assert {cluster.leader_of(topic, partition) for partition in range(3)} == {1, 2, 3}
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
        partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
        assert all(sorted(partition.replicas) == [1, 2, 3] for partition in partitions)
        assert cluster.controller() in cluster.brokers


def test_a_member_of_a_group_need_not_wait_for_those_that_have_left() -> None:
    """A heartbeat tells of an assignment too, but not while anybody waits for it here."""
    options = {"group.consumer.heartbeat.interval.ms": 600_000, "group.consumer.session.timeout.ms": 1_200_000}
    with Cluster(options=options) as cluster:
        topic = cluster.create_topic()
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "group.protocol": "consumer"}
        for _ in range(3):
            consumer = confluent_kafka.Consumer(settings)
            assigned: list[object] = []
            consumer.subscribe([topic], on_assign=lambda _, partitions, assigned=assigned: assigned.extend(partitions))
            deadline = time.monotonic() + 60
            while not assigned and time.monotonic() < deadline:
                consumer.poll(0.05)
            consumer.close()
            assert assigned


def test_options_are_the_brokers_settings() -> None:
    with Cluster(options={"num.partitions": 7, "auto.create.topics.enable": True}) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        assert len(producer.list_topics("made-on-demand", timeout=60).topics) == 1
        eventually(
            lambda: len(producer.list_topics("made-on-demand", timeout=60).topics["made-on-demand"].partitions), 7
        )


def test_a_topic_takes_its_own_settings() -> None:
    with Cluster() as cluster:
        name = cluster.create_topic("orders", partitions=2, config={"retention.ms": 1000})
        assert name == "orders"
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
        resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ConfigResource.Type.TOPIC, "orders")
        assert admin.describe_configs([resource])[resource].result(60)["retention.ms"].value == "1000"


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        ({"options": {"log.retention.millis": 1}}, ConfigError, "log.retention.ms"),
        ({"options": {"listeners": "PLAINTEXT://:9092"}}, ValueError, "the cluster's own"),
        ({"brokers": 0}, ValueError, "between 1 and"),
        ({"brokers": 2, "in_process": True}, ValueError, "in_process is for one broker"),
        ({"options": {"barnabas.metrics.port": 0}, "in_process": True}, ValueError, "is for a process"),
    ],
)
def test_what_cannot_be_is_refused_when_the_cluster_is_made(
    arguments: dict[str, object], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        Cluster(**arguments)  # type: ignore[arg-type]


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where clusters of this test have theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("in_process", [False, True], ids=["process", "thread"])
def test_a_broker_that_cannot_start_tells_why_and_leaves_nothing(in_process: bool, directories: Path) -> None:
    (directories / "file").write_text("not a directory")
    options = {"barnabas.metadata.file": directories / "file" / "metadata.sqlite"}
    with (
        pytest.raises(ClusterError, match=r"unable to open database|Not a directory"),
        Cluster(options=options, in_process=in_process),
    ):
        pass
    assert [path.name for path in directories.iterdir()] == ["file"]


def test_an_error_of_the_start_shows_the_log() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = {"barnabas.metrics.port": taken.getsockname()[1], "barnabas.log.level": "info"}
        with pytest.raises(ClusterError, match=r"cannot serve metrics on .*\n(.*\n)*.*INFO"), Cluster(options=options):
            pass


def test_a_closed_cluster_leaves_neither_processes_nor_files(directories: Path) -> None:
    ours = psutil.Process()
    before = set(ours.children(recursive=True))
    with Cluster(3) as cluster:
        started = set(ours.children(recursive=True)) - before
        assert list(directories.glob("barnabas-*/broker-3/meta.properties"))
        cluster.pause(2)
        address = cluster.address(1)
    assert len(started) == 4  # three brokers, and what they were forked from
    assert not any(process.is_running() for process in started)
    assert list(directories.iterdir()) == []
    assert not answers_metadata(address, 0.5)


def test_a_start_that_is_cancelled_leaves_nothing(directories: Path) -> None:
    async def start() -> None:
        async with asyncio.timeout(0.01), Cluster():
            pass

    with pytest.raises(TimeoutError):
        asyncio.run(start())
    assert list(directories.iterdir()) == []


def test_a_killed_test_process_leaves_nothing_running() -> None:
    script = (
        "import time; from barnabas.testing import Cluster; cluster = Cluster(2).__enter__(); cluster.pause(2);"
        "print(cluster.log(1) is not None, cluster._place(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().split()[1])
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) == 3
        process.send_signal(signal.SIGKILL)
    eventually(lambda: any(each.is_running() for each in started), False, timeout=60)
    eventually(directory.exists, False)


def test_a_dead_warden_takes_its_brokers_along() -> None:
    with Cluster() as cluster:
        [warden] = wardens()
        (broker,) = warden.children()
        warden.kill()
        eventually(broker.is_running, False, timeout=60)
        with pytest.raises(ClusterError, match="has died"):
            cluster.kill(1)
        with pytest.raises(ClusterError, match="has died"):
            cluster.close()


def test_a_cluster_is_used_up_when_it_is_closed() -> None:
    cluster = Cluster()
    with pytest.raises(ClusterError, match="does not run"):
        cluster.bootstrap  # noqa: B018
    with cluster:
        pass
    with pytest.raises(ClusterError, match="does not run"):
        cluster.start(1)
    with pytest.raises(ClusterError, match="entered before"):
        cluster.__enter__()


def test_a_fork_of_the_test_gives_no_orders() -> None:
    with Cluster() as cluster:
        child = os.fork()
        if child == 0:
            try:
                cluster.kill(1)
            except ClusterError as error:
                os._exit(7 if "before a fork" in str(error) else 8)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert answers_metadata(cluster.bootstrap, 10)
