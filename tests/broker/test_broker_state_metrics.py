"""Groups, transactions and compaction of a running broker, as a scrape shows them."""

from __future__ import annotations

from pathlib import Path

from barnabas.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.metrics import Metrics
from tests.broker.servers import barnabas_only
from tests.broker.transactional import GROUP, TransactionalProducer, find_coordinator, settled
from tests.broker.wire_client import Client, batch
from tests.peers import BarnabasServer, eventually, free_port

pytestmark = barnabas_only("these are our own metrics")


def test_coordinators_are_seen_at_work(tmp_path: Path) -> None:
    metrics = Metrics(free_port())
    settings = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}
    with (
        BarnabasServer(tmp_path / "data", settings, arguments=metrics.arguments) as broker,
        Client(broker.address) as client,
    ):
        assert shards(metrics) == {}
        find_coordinator(client, "some-group", GROUP)
        topic = client.create_topic()
        place = OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 5, -1, None)])
        settled(lambda: client.call(OffsetCommitRequest("some-group", topics=[place]), 9).topics[0].partitions[0])
        assert metrics.value("barnabas_groups", type="classic", state="Empty") == 1
        idle, busy = TransactionalProducer(client), TransactionalProducer(client)
        busy.write(topic, b"x")
        eventually(lambda: shards(metrics), {("group", "loaded"): 3.0, ("transaction", "loaded"): 2.0})
        assert metrics.value("barnabas_transactional_ids", state="Empty") == 1
        assert metrics.value("barnabas_transactional_ids", state="Ongoing") == 1
        busy.end(commit=True)
        assert metrics.value("barnabas_transactional_ids", state="Ongoing") == 0
        assert metrics.value("barnabas_transactional_ids", state="CompleteCommit") == 1
        assert idle.state() == "Empty"


def shards(metrics: Metrics) -> dict[tuple[str, str], float]:
    """Those that there are, by coordinator and state."""
    return {
        (dict(labels)["coordinator"], dict(labels)["state"]): count
        for (name, labels), count in metrics.scrape().items()
        if name == "barnabas_coordinator_shards" and count
    }


def test_compaction_is_counted(tmp_path: Path) -> None:
    metrics = Metrics(free_port())
    settings = {"log.cleaner.backoff.ms": "50"}
    config = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    with (
        BarnabasServer(tmp_path / "data", settings, arguments=metrics.arguments) as broker,
        Client(broker.address) as client,
    ):
        topic = client.create_topic(config=config)
        for _ in range(6):
            client.produce(topic, batch(b"x" * 300_000))  # all under one key
        eventually(lambda: metrics.value("barnabas_compaction_rounds_total") >= 1, True)
        read, written = (metrics.value(f"barnabas_compaction_{kind}_bytes_total") for kind in ("read", "written"))
        assert read > 800_000
        assert written < read / 2
        assert metrics.value("barnabas_compaction_seconds_total") > 0
        assert metrics.value("barnabas_compaction_uncleanable_logs") == 0
