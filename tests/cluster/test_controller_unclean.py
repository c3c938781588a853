"""Every replica goes down at once: killed processes lose nothing, and after a power cut the operator decides."""

from __future__ import annotations

import json
import re
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.broker.metrics import Metrics
from tests.cluster.three_brokers import NUMBERS, Cluster, in_sync, leaders, three_brokers
from tests.peers import eventually, free_port, kafka_tool

TOPIC = "orders"
RECORDS = 100
PATIENCE_S = 30


def read(cluster: Cluster) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = [message.value() for message in consumer.consume(RECORDS, 60)]
    consumer.close()
    return found


def lose_power(data_dir: Path) -> None:
    """As if the kernel had been started since: its id is another one than the broker has noted."""
    note = data_dir / ".barnabas_boot"
    note.write_text(json.dumps({**json.loads(note.read_text()), "bootId": "of an earlier start"}))


def test_all_replicas_at_once(tmp_path: Path) -> None:
    metrics = {number: Metrics(free_port()) for number in NUMBERS}

    def unclean_elections() -> float:
        return sum(each.value("barnabas_unclean_elections_total") for each in metrics.values())

    def restart_all() -> None:
        for number in NUMBERS:
            cluster.start(number, {"barnabas.metrics.port": str(metrics[number].port)})

    with three_brokers(tmp_path, {"min.insync.replicas": "2"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, len(NUMBERS))])[TOPIC].result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        written = [b"%d" % number for number in range(RECORDS)]
        for value in written:
            producer.produce(TOPIC, value, partition=0)
        assert producer.flush(60) == 0

        cluster.kill(*NUMBERS)
        restart_all()
        eventually(lambda: in_sync(cluster.address(1), TOPIC), {0: set(NUMBERS)}, PATIENCE_S)
        assert unclean_elections() == 0
        assert read(cluster) == written

        cluster.kill(*NUMBERS)
        for number in NUMBERS:
            lose_power(cluster.data_dir(number))
        restart_all()
        eventually(lambda: leaders(cluster.address(2), TOPIC), {0: -1}, PATIENCE_S)
        described = kafka_tool(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", cluster.address(2), "--describe"
        )
        found = re.search(r"Leader: none\s.*\sIsr: \s*Elr: \s*LastKnownElr: (\d)", described)
        assert found, described
        last_leader = int(found[1])
        of_single_replicas = unclean_elections()

        allowed = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[allowed])
        admin.incremental_alter_configs([resource])[resource].result(60)
        eventually(lambda: leaders(cluster.address(1), TOPIC), {0: last_leader}, PATIENCE_S)
        assert unclean_elections() == of_single_replicas + 1
        assert any(
            "unclean election of leaders for 1 partitions: orders-0" in b.tail() for b in cluster.brokers.values()
        )
        eventually(lambda: in_sync(cluster.address(1), TOPIC), {0: set(NUMBERS)}, PATIENCE_S)
        assert read(cluster) == written
