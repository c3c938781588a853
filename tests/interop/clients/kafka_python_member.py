"""A member of a consumer group on kafka-python."""

from __future__ import annotations

import logging
import os
import sys
import threading

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from tests.interop.clients.journal import Journal, Stop, arguments

REQUEST_TIMEOUT_S = 10
STUCK_S = 15.0
ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.owned: set[int] = set()
        self.is_rebalancing = False

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        gained = {each.partition for each in assigned}
        self.owned |= gained
        self.is_rebalancing = False
        self.journal.write("gain", gained)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        lost = {each.partition for each in revoked}
        self.owned -= lost
        self.is_rebalancing = True
        self.journal.write("lose", lost)


def begin_anew_when_stuck(moved: threading.Event, listener: Listener, stop: Stop) -> None:
    """A call or a rebalance that outlasts all of its requests never ends: on a busy machine kafka-python 3.0.12 can be
    elected, and then neither assign nor send heartbeats any more. What a broker leaves unanswered ends with a time-out
    before."""
    while moved.wait(STUCK_S):
        moved.clear()
    if stop:
        return
    print(f"stuck for {STUCK_S:.0f} s, beginning anew", file=sys.stderr, flush=True)
    listener.journal.write("lose", listener.owned)
    os.execv(sys.executable, [sys.executable, "-m", "tests.interop.clients.kafka_python_member", *sys.argv[1:]])


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stop = Stop()
    address, group, topic, journal, settings = arguments()
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(settings["session_timeout_ms"]),
        heartbeat_interval_ms=500,
        request_timeout_ms=REQUEST_TIMEOUT_S * 1000,
        partition_assignment_strategy=[ASSIGNORS[settings["partition_assignment_strategy"]]],
    )
    # One that is elected before it has heard of the topic assigns nothing, for good (kafka-python 3.0.12).
    assert consumer.partitions_for_topic(topic)
    listener, moved = Listener(journal), threading.Event()
    consumer.subscribe([topic], listener=listener)
    threading.Thread(target=begin_anew_when_stuck, args=(moved, listener, stop), daemon=True).start()
    while not stop:
        if not listener.is_rebalancing:
            moved.set()
        polled = consumer.poll(timeout_ms=100)
        for record in (record for records in polled.values() for record in records):
            journal.write("saw", [record.partition, record.offset])
        if polled:
            try:
                consumer.commit()
            except KafkaError as error:  # its partitions may have moved on; their new owner reads again
                print(error, file=sys.stderr)
    consumer.close()


main()
