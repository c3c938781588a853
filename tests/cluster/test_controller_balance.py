"""Leaderships come back by themselves to a broker that has been away."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.three_brokers import NUMBERS, leaders, three_brokers
from tests.peers import eventually

SETTINGS = {"leader.imbalance.check.interval.seconds": "1"}
PARTITIONS = 6
PATIENCE_S = 30


def test_a_broker_that_comes_back_leads_what_prefers_it(tmp_path: Path, topic_name: str) -> None:
    with three_brokers(tmp_path, SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic_name, PARTITIONS, len(NUMBERS))])[topic_name].result(60)
        asked = cluster.address(cluster.controller())
        before = leaders(asked, topic_name)
        assert set(before.values()) == set(NUMBERS)
        victim = next(number for number in NUMBERS if cluster.address(number) != asked)
        cluster.kill(victim)
        eventually(lambda: victim in leaders(asked, topic_name).values(), False, PATIENCE_S)
        cluster.start(victim)
        eventually(lambda: leaders(asked, topic_name), before, PATIENCE_S)
