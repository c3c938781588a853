"""Incremental fetch sessions: what is remembered, what is left out, and what is refused."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.broker.copied_partitions import CopiedPartitions
from barnabas.broker.fetch_sessions import FetchSession, FetchSessions, Wanted
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData


def fetch(session_id: int, epoch: int, *partitions: int, forget: tuple[int, ...] = (), offset: int = 0) -> FetchRequest:
    asked = [FetchPartition(partition=index, fetch_offset=offset) for index in partitions]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=asked)] if asked else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))] if forget else [],
    )


def data(index: int, *, high_watermark: int = 5, records: bytes = b"", error: int = 0) -> PartitionData:
    return PartitionData(partition_index=index, high_watermark=high_watermark, records=records, error_code=error)


def indexes(session: FetchSession) -> list[int]:
    return [wanted.partition.partition for wanted in session.wanted.values()]


def answer(session: FetchSession, *results: PartitionData) -> list[int]:
    """Answer with these results; the partitions that were sent."""
    by_index = {wanted.partition.partition: wanted for wanted in session.wanted.values()}
    pairs: list[tuple[Wanted, PartitionData]] = [(by_index[result.partition_index], result) for result in results]
    return [result.partition_index for _, result in session.select(pairs)]


def replica(broker_id: int, broker_epoch: int, *, is_believed: bool = True) -> CopiedPartitions:
    return CopiedPartitions(broker_id, broker_epoch, is_believed=is_believed)


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(2, Random(1))


def refusal(sessions: FetchSessions, request: FetchRequest, by_topic_id: bool = False) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        sessions.begin(request, by_topic_id, 0)
    return refused.value.code


def test_a_session_remembers_what_was_asked_and_follows_changes(sessions: FetchSessions) -> None:
    first = sessions.begin(fetch(0, 0, 1, 2, 3), False, 0)
    assert first.id > 0
    again = sessions.begin(fetch(first.id, 1), False, 0)
    assert again is first
    assert indexes(again) == [1, 2, 3]
    changed = sessions.begin(fetch(first.id, 2, 2, 4, forget=(1,), offset=9), False, 0)
    assert indexes(changed) == [2, 3, 4]
    assert next(iter(changed.wanted.values())).partition.fetch_offset == 9


def test_an_incremental_response_leaves_out_what_is_not_new(sessions: FetchSessions) -> None:
    session = sessions.begin(fetch(0, 0, 1, 2), False, 0)
    assert answer(session, data(1), data(2)) == [1, 2]
    session = sessions.begin(fetch(session.id, 1), False, 0)
    assert answer(session, data(1), data(2, high_watermark=6)) == [2]
    session = sessions.begin(fetch(session.id, 2), False, 0)
    assert answer(session, data(1, records=b"x"), data(2, high_watermark=6)) == [1]


def test_an_error_is_told_and_so_is_its_end(sessions: FetchSessions) -> None:
    session = sessions.begin(fetch(0, 0, 1), False, 0)
    assert answer(session, data(1)) == [1]
    session = sessions.begin(fetch(session.id, 1), False, 0)
    assert answer(session, data(1, error=6, high_watermark=-1)) == [1]
    session = sessions.begin(fetch(session.id, 2), False, 0)
    assert answer(session, data(1)) == [1]


def test_partitions_that_had_data_go_last_so_that_none_starves(sessions: FetchSessions) -> None:
    session = sessions.begin(fetch(0, 0, 1, 2, 3), False, 0)
    answer(session, data(1, records=b"x"), data(2), data(3))
    assert indexes(session) == [2, 3, 1]


def test_wrong_sessions_and_epochs_are_refused(sessions: FetchSessions) -> None:
    session = sessions.begin(fetch(0, 0, 1), False, 0)
    assert refusal(sessions, fetch(session.id + 1, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert refusal(sessions, fetch(session.id, 2)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refusal(sessions, fetch(session.id, 1), by_topic_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_epoch_minus_one_ends_a_session(sessions: FetchSessions) -> None:
    session = sessions.begin(fetch(0, 0, 1), False, 0)
    last = sessions.begin(fetch(session.id, -1, 1), False, 0)
    assert last.id == 0
    assert len(sessions) == 0
    assert refusal(sessions, fetch(session.id, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_cache_gives_no_session_until_one_was_unused_for_long(sessions: FetchSessions) -> None:
    oldest = sessions.begin(fetch(0, 0, 1), False, 0)
    sessions.begin(fetch(0, 0, 1), False, 1_000)
    assert sessions.begin(fetch(0, 0, 1), False, 100_000).id == 0
    assert sessions.begin(fetch(0, 0, 1), False, 120_500).id > 0
    assert len(sessions) == 2
    assert refusal(sessions, fetch(oldest.id, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_wrap_to_one(sessions: FetchSessions) -> None:
    session = sessions.begin(fetch(0, 0, 1), False, 0)
    session.epoch = 2**31 - 1
    sessions.begin(fetch(session.id, 2**31 - 1), False, 0)
    assert session.epoch == 1


def test_a_replica_makes_room_for_its_session_at_once_and_never_for_a_consumer(sessions: FetchSessions) -> None:
    first = sessions.begin(fetch(0, 0, 1), False, 0, replica(3, 30))
    consumer = sessions.begin(fetch(0, 0, 1), False, 0)
    another = sessions.begin(fetch(0, 0, 1), False, 1, replica(4, 40))
    assert another.id > 0
    assert refusal(sessions, fetch(consumer.id, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.begin(fetch(0, 0, 1), False, 10**9).id == 0
    assert sessions.begin(fetch(0, 0, 1), False, 10**9, replica(5, 50)).id == 0
    assert sessions.begin(fetch(first.id, 1), False, 10**9, replica(3, 30)) is first


@pytest.mark.parametrize("asking", [None, replica(4, 30), replica(3, 31)])
def test_a_session_of_a_replica_is_for_that_replica_in_its_present_life(
    sessions: FetchSessions, asking: CopiedPartitions | None
) -> None:
    session = sessions.begin(fetch(0, 0, 1), False, 0, replica(3, 30))
    with pytest.raises(KafkaError) as refused:
        sessions.begin(fetch(session.id, 1), False, 0, asking)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_sessions_of_an_earlier_life_of_a_replica_go(sessions: FetchSessions) -> None:
    sessions.begin(fetch(0, 0, 1), False, 0, replica(3, 30))
    staying = sessions.begin(fetch(0, 0, 1), False, 0, replica(4, 40))
    sessions.drop_replica(3, 31)
    assert len(sessions) == 1
    assert sessions.begin(fetch(staying.id, 1), False, 0, replica(4, 40)) is staying


def test_what_a_replica_asks_for_again_is_served_last(sessions: FetchSessions) -> None:
    session = sessions.begin(fetch(0, 0, 1, 2, 3), False, 0, replica(3, 30))
    assert session.copied is not None
    sessions.begin(fetch(session.id, 1, 1, forget=(2,)), False, 0, replica(3, 30))
    assert [wanted.partition.partition for wanted in session.copied.due] == [3, 1]


def test_a_nearer_replica_is_news(sessions: FetchSessions) -> None:
    session = sessions.begin(fetch(0, 0, 1), False, 0)
    answer(session, data(1))
    sessions.begin(fetch(session.id, 1), False, 0)
    assert answer(session, data(1)) == []
    nearer = data(1)
    nearer.preferred_read_replica = 2
    assert answer(session, nearer) == [1]


def test_who_only_claims_to_be_a_replica_makes_room_as_a_consumer_does(sessions: FetchSessions) -> None:
    sessions.begin(fetch(0, 0, 1), False, 0)
    sessions.begin(fetch(0, 0, 1), False, 0, replica(3, 30, is_believed=False))
    assert sessions.begin(fetch(0, 0, 1), False, 1, replica(3, 30, is_believed=False)).id == 0
    assert sessions.begin(fetch(0, 0, 1), False, 1, replica(4, 40)).id > 0
    assert sessions.begin(fetch(0, 0, 1), False, 1, replica(5, 50)).id > 0
    assert len(sessions) == 2
