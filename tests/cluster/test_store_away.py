"""The metadata store goes away under three brokers, and comes back.

Meanwhile records go in and out, nobody leaves the in-sync replicas, and whoever wants to change something waits for as
long as it says and then hears what is missing.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages import k19_create_topics as k19
from barnabas.wire.messages import k20_delete_topics as k20
from barnabas.wire.messages import k22_init_producer_id as k22
from barnabas.wire.messages import k37_create_partitions as k37
from barnabas.wire.messages import k43_elect_leaders as k43
from barnabas.wire.messages import k45_alter_partition_reassignments as k45
from tests.broker.wire_client import Client
from tests.cluster.three_brokers import NUMBERS, Cluster, in_sync, leaders, seconds_until, three_brokers
from tests.peers import ZooKeeperServer, eventually

TOPIC = "orders"
PARTITIONS = 3
SESSION_S = 2
ZOOKEEPER = {
    "zookeeper.session.timeout.ms": str(1000 * SESSION_S),
    "zookeeper.connection.timeout.ms": "1000",
    "replica.lag.time.max.ms": "1500",
}
BACK_WITHIN_S = 60
ALL_IN_SYNC = {partition: set(NUMBERS) for partition in range(PARTITIONS)}


def create(address: str, name: str, timeout_ms: int, replicas: int = 1) -> tuple[ErrorCode, str]:
    topic = k19.CreatableTopic(name, PARTITIONS, replicas)
    with Client(address, timeout=BACK_WITHIN_S) as client:
        (result,) = client.call(k19.CreateTopicsRequest([topic], timeout_ms)).topics
    return ErrorCode(result.error_code), result.error_message or ""


def create_replicated(cluster: Cluster) -> None:
    assert create(cluster.address(1), TOPIC, 60_000, len(NUMBERS)) == (ErrorCode.NONE, "")
    for number in NUMBERS:
        eventually(lambda at=number: in_sync(cluster.address(at), TOPIC), ALL_IN_SYNC)  # type: ignore[misc]


def producer_of(cluster: Cluster) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0})


def write(producer: Producer, value: bytes) -> None:
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, value, partition=partition)


def values(cluster: Cluster, partition: int, count: int) -> list[bytes | None]:
    no_coordinator = {"group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **no_coordinator})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found = [message.value() for message in consumer.consume(count, 60)]
    consumer.close()
    return found


def refusals(address: str) -> list[tuple[int, str | None]]:
    """What each item of changes that cannot be made is told, through one broker."""
    with Client(address, timeout=BACK_WITHIN_S) as client:
        deleted = client.call(k20.DeleteTopicsRequest([k20.DeleteTopicState(TOPIC)], timeout_ms=300)).responses
        grown = client.call(k37.CreatePartitionsRequest([k37.CreatePartitionsTopic(TOPIC, 9, None)], 300)).results
        moved = client.call(
            k45.AlterPartitionReassignmentsRequest(
                300, topics=[k45.ReassignableTopic(TOPIC, [k45.ReassignablePartition(0, [1])])]
            )
        )
        elected = client.call(k43.ElectLeadersRequest(0, [k43.TopicPartitions(TOPIC, [0, 1])], 300))
    items = [*deleted, *grown, *moved.responses[0].partitions, *elected.replica_election_results[0].partition_result]
    return [(item.error_code, item.error_message) for item in items]


def test_zookeeper_dies_and_comes_back(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        port = int(zookeeper.address.rpartition(":")[2])
        settings = {**ZOOKEEPER, "zookeeper.connect": f"{zookeeper.address}/cluster"}
        with three_brokers(tmp_path, settings) as cluster:
            create_replicated(cluster)
            producer = producer_of(cluster)
            write(producer, b"before")
            assert producer.flush(60) == 0
            led_by = leaders(cluster.address(1), TOPIC)

            zookeeper.kill()
            deadline = time.monotonic() + 2 * SESSION_S
            written = [b"before"]
            while time.monotonic() < deadline:
                written.append(b"%d" % len(written))
                write(producer, written[-1])
                assert producer.flush(60) == 0
                time.sleep(0.05)
            assert [values(cluster, partition, len(written)) for partition in range(PARTITIONS)] == [written] * 3
            for number in NUMBERS:
                code, message = create(cluster.address(number), "another", 500)
                assert code is ErrorCode.REQUEST_TIMED_OUT
                assert "within 0.5 s: the metadata store is out of reach (ZooKeeper at" in message
                told = refusals(cluster.address(number))
                assert [code for code, _ in told] == [ErrorCode.REQUEST_TIMED_OUT] * 5
                assert all("metadata store is out of reach" in (message or "") for _, message in told)
            victim = next(number for number in NUMBERS if number != cluster.controller())
            cluster.kill(victim)
            write(producer, b"waits")
            assert producer.flush(3) > 0, "nobody leaves the in-sync replicas, so what the dead one misses is not there"
            assert in_sync(cluster.some_address, TOPIC) == ALL_IN_SYNC
            assert leaders(cluster.some_address, TOPIC) == led_by

            with ZooKeeperServer(tmp_path / "zookeeper", port=port):
                assert producer.flush(BACK_WITHIN_S) == 0
                two = {partition: set(NUMBERS) - {victim} for partition in range(PARTITIONS)}
                eventually(lambda: in_sync(cluster.some_address, TOPIC), two, BACK_WITHIN_S)
                code, message = create(cluster.some_address, "later", 60_000)
                assert (code, message) == (ErrorCode.NONE, "")
                cluster.start(victim)
                eventually(lambda: in_sync(cluster.some_address, TOPIC), ALL_IN_SYNC, BACK_WITHIN_S)
                for broker in list(cluster.brokers):
                    cluster.stop(broker)


def test_an_embedded_store_that_somebody_locks_holds_up_changes_alone(tmp_path: Path) -> None:
    with three_brokers(tmp_path) as cluster:
        create_replicated(cluster)
        producer = producer_of(cluster)
        write(producer, b"before")
        assert producer.flush(60) == 0
        other = sqlite3.connect(tmp_path / "metadata.sqlite", isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            write(producer, b"meanwhile")
            assert producer.flush(60) == 0
            asked = next(number for number in NUMBERS if number != cluster.controller())
            code, message = create(cluster.address(asked), "another", 500)
            assert code is ErrorCode.REQUEST_TIMED_OUT
            assert "within 0.5 s" in message
            code, message = create(cluster.address(cluster.controller()), "third", 7_000)
            assert code is ErrorCode.REQUEST_TIMED_OUT
            assert "database is locked" in message
            assert values(cluster, 0, 2) == [b"before", b"meanwhile"]
        finally:
            other.close()
        code, message = create(cluster.address(asked), "fourth", 60_000)
        assert (code, message) == (ErrorCode.NONE, "")


def test_producer_ids_that_nobody_can_give_are_asked_for_again(tmp_path: Path) -> None:
    with three_brokers(tmp_path) as cluster:
        other = sqlite3.connect(tmp_path / "metadata.sqlite", isolation_level=None)
        with Client(cluster.address(2)) as client:

            def ask() -> ErrorCode:
                return ErrorCode(client.call(k22.InitProducerIdRequest(None, -1)).error_code)

            try:
                other.execute("BEGIN IMMEDIATE")
                assert ask() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            finally:
                other.close()
            seconds_until(lambda: ask() is ErrorCode.NONE, BACK_WITHIN_S)
