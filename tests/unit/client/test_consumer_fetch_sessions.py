"""What is said to a broker that remembers what it was asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from barnabas.client.consume.fetch_options import FetchOptions
from barnabas.client.consume.fetch_sessions import FetchSession
from barnabas.client.consume.positions import PartitionState
from barnabas.client.list_offsets import Isolation
from barnabas.client.metadata import Metadata, TopicPartition
from barnabas.wire.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

OPTIONS = FetchOptions(Isolation.READ_UNCOMMITTED, 500, 1, 50 << 20, 1 << 20, True, "", "latest", 300_000)
SESSION = 77


class OneLeader:
    def leader_epoch(self, partition: TopicPartition) -> int:
        return 3


def new_session() -> FetchSession:
    return FetchSession(cast("Metadata", OneLeader()), OPTIONS)


def state(topic: str, index: int, offset: int = 0) -> PartitionState:
    made = PartitionState(TopicPartition(topic, index))
    made.topic_id = topic.encode().ljust(16, b".")
    made.place(offset)
    return made


def asked(request: FetchRequest) -> tuple[tuple[int, int], dict[tuple[str, int], int], list[tuple[str, int]]]:
    """Session and epoch, what is new, what is forgotten."""
    new = {(t.topic, p.partition): p.fetch_offset for t in request.topics for p in t.partitions}
    gone = [(topic.topic, index) for topic in request.forgotten_topics_data for index in topic.partitions]
    return (request.session_id, request.session_epoch), new, gone


def answer(session: FetchSession, session_id: int = SESSION, *partitions: tuple[bytes, int]) -> list[Any]:
    found = [FetchableTopicResponse(topic_id=i, partitions=[PartitionData(partition_index=n)]) for i, n in partitions]
    response = FetchResponse(session_id=session_id, responses=found)
    return [partition for partition, _ in session.answered(response)]


def test_only_what_has_changed_is_said_again() -> None:
    session, first, second = new_session(), state("a", 0), state("b", 1)
    assert asked(session.plan([first, second])) == ((0, 0), {("a", 0): 0, ("b", 1): 0}, [])
    assert answer(session, SESSION, (b"b" + b"." * 15, 1)) == [TopicPartition("b", 1)]
    second.place(5)
    assert asked(session.plan([first, second])) == ((SESSION, 1), {("b", 1): 5}, [])
    answer(session)
    assert asked(session.plan([first])) == ((SESSION, 2), {}, [("b", 1)])


def test_a_topic_made_anew_is_another_topic() -> None:
    session, only = new_session(), state("a", 0)
    session.plan([only])
    answer(session)
    only.topic_id = b"new".ljust(16, b".")
    request = session.plan([only])
    assert asked(request) == ((SESSION, 1), {("a", 0): 0}, [("a", 0)])
    assert request.topics[0].topic_id == only.topic_id != request.forgotten_topics_data[0].topic_id


def test_a_session_that_is_lost_begins_anew_and_frees_the_old_one() -> None:
    session, only = new_session(), state("a", 0)
    session.plan([only])
    answer(session)
    session.plan([only])
    session.lost()
    assert asked(session.plan([only])) == ((SESSION, 0), {("a", 0): 0}, [])
    answer(session, SESSION + 1)
    assert asked(session.plan([only]))[0] == (SESSION + 1, 1)
    session.lost(unknown=True)
    assert asked(session.plan([only])) == ((0, 0), {("a", 0): 0}, [])


def test_a_broker_without_room_is_told_everything_every_time() -> None:
    session, only = new_session(), state("a", 0)
    for _ in range(2):
        assert asked(session.plan([only])) == ((0, 0), {("a", 0): 0}, [])
        answer(session, 0)


def test_one_topic_without_an_id_makes_all_go_by_name() -> None:
    session, first, second = new_session(), state("a", 0), state("b", 0)
    session.plan([first])
    assert session.highest_version is None
    answer(session)
    second.topic_id = None
    assert asked(session.plan([first, second])) == ((SESSION, 0), {("a", 0): 0, ("b", 0): 0}, [])
    assert session.highest_version == 12


def test_the_options_are_said() -> None:
    session = FetchSession(cast("Metadata", OneLeader()), replace(OPTIONS, client_rack="r", fetch_max_wait_ms=7))
    request = session.plan([state("a", 0)])
    assert (request.rack_id, request.max_wait_ms, request.min_bytes, request.max_bytes) == ("r", 7, 1, 50 << 20)
    wanted = request.topics[0].partitions[0]
    assert (wanted.current_leader_epoch, wanted.partition_max_bytes) == (3, 1 << 20)
