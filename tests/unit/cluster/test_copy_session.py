"""A follower's end of a fetch session: what each request says, and what it leaves out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cluster.copy_session import Copy, CopySession, FetchSettings, Key
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k01_fetch import FetchRequest, FetchResponse, ReplicaState

TOPIC_ID = bytes(15) + b"t"
SETTINGS = FetchSettings()


def copy_of(index: int, end: int = 0) -> Copy:
    epochs = SimpleNamespace(latest=4)
    log = SimpleNamespace(
        topic="t", topic_id=TOPIC_ID, partition=index, log_end_offset=end, log_start_offset=0, leader_epochs=epochs
    )
    partition: Any = SimpleNamespace(log=log, leader_epoch=5)
    return Copy(partition)


def key(index: int) -> Key:
    return TOPIC_ID, index


class Follower:
    def __init__(self, *indexes: int) -> None:
        self.session = CopySession()
        self.copies = {index: copy_of(index) for index in indexes}
        for index in indexes:
            self.ask(index)

    def ask(self, index: int) -> None:
        self.session.ask(key(index), self.copies[index])

    def request(self) -> FetchRequest:
        return self.session.request(ReplicaState(2, 20), SETTINGS, 500)

    def exchange(self, session_id: int = 7, error: ErrorCode = ErrorCode.NONE) -> FetchRequest:
        """One request, and its answer."""
        request = self.request()
        self.session.answered(FetchResponse(session_id=session_id, error_code=error))
        return request


def asked(request: FetchRequest) -> list[int]:
    return [partition.partition for topic in request.topics for partition in topic.partitions]


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def test_a_partition_is_asked_for_once_and_again_only_from_another_offset() -> None:
    follower = Follower(0, 1, 2)
    first = follower.exchange()
    assert (asked(first), first.session_id, first.session_epoch) == ([0, 1, 2], 0, 0)
    assert [len(topic.partitions) for topic in first.topics] == [3]
    second = follower.exchange()
    assert (asked(second), second.session_id, second.session_epoch) == ([], 7, 1)
    follower.copies[1].partition.log.log_end_offset = 9
    follower.ask(1)
    third = follower.exchange()
    (partition,) = third.topics[0].partitions
    assert (partition.partition, partition.fetch_offset, third.session_epoch) == (1, 9, 2)
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (5, 4)


def test_what_is_no_longer_wanted_is_forgotten_once() -> None:
    follower = Follower(0, 1)
    follower.exchange()
    follower.session.unask(key(1))
    assert not follower.session.asks_for(key(1), follower.copies[1])
    assert forgotten(follower.exchange()) == [1]
    assert forgotten(follower.exchange()) == []
    follower.session.unask(key(0))
    assert follower.session.is_empty


def test_what_was_never_asked_for_is_not_forgotten() -> None:
    follower = Follower(0, 1)
    follower.session.unask(key(1))
    request = follower.exchange()
    assert (asked(request), forgotten(request)) == ([0], [])


def test_an_answer_counts_for_the_leader_epoch_that_was_asked_for() -> None:
    follower = Follower(0)
    follower.exchange()
    assert follower.session.asks_for(key(0), follower.copies[0])
    assert not follower.session.asks_for(key(0), copy_of(0))


def test_after_a_lost_connection_all_is_asked_for_and_the_old_session_named() -> None:
    follower = Follower(0, 1)
    follower.exchange()
    follower.session.unask(key(1))
    newer = follower.copies[0] = copy_of(0, end=3)
    follower.ask(0)
    follower.session.begin_anew()
    request = follower.request()
    assert (request.session_id, request.session_epoch) == (7, 0)
    assert (asked(request), forgotten(request)) == ([0], [])
    assert request.topics[0].partitions[0].fetch_offset == 3
    assert follower.session.asks_for(key(0), newer)


@pytest.mark.parametrize("error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_session_that_the_leader_does_not_know_begins_anew(error: ErrorCode) -> None:
    follower = Follower(0, 1)
    follower.exchange()
    follower.exchange(error=error)
    request = follower.request()
    assert (asked(request), request.session_id, request.session_epoch) == ([0, 1], 0, 0)


def test_any_other_refusal_ends_the_connection() -> None:
    follower = Follower(0)
    with pytest.raises(ConnectionError, match="UNKNOWN_SERVER_ERROR"):
        follower.exchange(error=ErrorCode.UNKNOWN_SERVER_ERROR)


def test_without_room_for_a_session_everything_is_asked_for_every_time() -> None:
    follower = Follower(0, 1)
    for _ in range(3):
        request = follower.exchange(session_id=0)
        assert (asked(request), request.session_id, request.session_epoch) == ([0, 1], 0, 0)


def test_epochs_go_on_with_one_after_the_last() -> None:
    follower = Follower(0)
    follower.exchange()
    follower.session._epoch = 2**31 - 1
    assert follower.exchange().session_epoch == 2**31 - 1
    assert follower.exchange().session_epoch == 1
