"""A broker whose metadata is in ZooKeeper: nothing but the configuration tells."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.peers import HOST, BarnabasServer, ZooKeeperServer, barnabas_command, eventually, free_port


def topics(broker: BarnabasServer) -> set[str]:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    return set(admin.list_topics(timeout=10).topics)


def test_topics_and_records_are_there_again_after_a_clean_stop_and_after_a_crash(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    settings = {
        "zookeeper.connect": f"{zookeeper.address}/one",
        "barnabas.zookeeper.auth": "barnabas:secret",
        "zookeeper.session.timeout.ms": "10000",
    }
    with BarnabasServer(tmp_path / "data", settings) as broker:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([confluent_kafka.admin.NewTopic("orders", 3, 1)])["orders"].result(10)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
        producer.produce("orders", b"first", partition=1)
        assert producer.flush(10) == 0
    assert not (tmp_path / "data" / "metadata.sqlite").exists()
    with BarnabasServer(tmp_path / "data", settings) as broker:
        assert "orders" in topics(broker)
        broker.kill()
    with BarnabasServer(tmp_path / "data", settings, timeout=9) as broker:  # it need not wait for the old session
        assert "orders" in topics(broker)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
        consumer.assign([confluent_kafka.TopicPartition("orders", 1, 0)])
        message = consumer.poll(10)
        assert message is not None
        assert message.value() == b"first"
        consumer.close()


def test_a_broker_waits_for_zookeeper_says_so_and_can_be_stopped_meanwhile(tmp_path: Path) -> None:
    settings = (f"zookeeper.connect={HOST}:{free_port()}", "zookeeper.connection.timeout.ms=200")
    choices = [part for setting in settings for part in ("--set", setting)]
    command = barnabas_command("up", "--data-dir", str(tmp_path / "data"), "--port", "0", *choices)
    log = tmp_path / "log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            eventually(lambda: "waiting for ZooKeeper" in log.read_text(), True)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("zookeeper.connect=host:port", "zookeeper.connect='host:port' is not allowed"),
        ("barnabas.zookeeper.auth=user", "barnabas.zookeeper.auth is not allowed: write user:password"),
    ],
)
def test_a_setting_that_cannot_be_meant_ends_the_start_with_its_name(
    tmp_path: Path, setting: str, problem: str
) -> None:
    choices = ("--set", f"zookeeper.connect={HOST}:1", "--set", setting)
    command = barnabas_command("up", "--data-dir", str(tmp_path / "data"), "--port", "0", *choices)
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode != 0
    assert problem in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
