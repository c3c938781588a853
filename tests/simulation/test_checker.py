from __future__ import annotations

from dataclasses import replace

from tests.checker.history import (
    UNTOLD,
    Acknowledged,
    Event,
    Fault,
    FinalLog,
    FinalReplica,
    Polled,
    PowerCut,
    ProducerIdGiven,
    Record,
    Recovered,
    Sent,
    SequenceForgotten,
    TopicPartition,
    Trimmed,
    Trimming,
    UncleanElection,
)
from tests.simulation.checker import anomalies

PLAIN, SYNCED = TopicPartition("plain", 0), TopicPartition("synced", 0)
A, B, C = b"p:0", b"p:1", b"p:2"


def sent(partition: TopicPartition, *values: bytes) -> Sent:
    return Sent("p", partition, values)


def acknowledged(partition: TopicPartition, base_offset: int, *values: bytes, life: int = 0) -> Acknowledged:
    return Acknowledged("p", life, partition, base_offset, values)


def polled(partition: TopicPartition, *records: Record, life: int = 0) -> Polled:
    return Polled("c", life, partition, records[0][0], records)


def final(partition: TopicPartition, *values: bytes, start: int = 0) -> FinalLog:
    return FinalLog(partition, start, tuple(enumerate(values, start)))


def found(*events: Event) -> list[str]:
    return anomalies(((0.0, event) for event in events), {"synced"}, {"expiring"}, {"p"})


def test_a_history_without_fault_is_fine() -> None:
    assert not found(
        ProducerIdGiven("p", 7, 0),
        sent(PLAIN, A, B),
        sent(PLAIN, C),
        acknowledged(PLAIN, 0, A, B),
        polled(PLAIN, (0, A), (1, B), (2, C)),
        Fault("crash"),
        Recovered(PLAIN, 300, 300, True),
        acknowledged(PLAIN, 2, C),
        final(PLAIN, A, B, C),
    )


def test_an_acknowledged_record_that_a_crash_takes_is_lost() -> None:
    assert found(sent(PLAIN, A), acknowledged(PLAIN, 0, A), Fault("crash"), final(PLAIN)) == ["plain-0: lost: p:0 at 0"]


def test_an_acknowledged_record_of_which_no_offset_was_told_must_be_somewhere() -> None:
    events = (sent(PLAIN, A, B), acknowledged(PLAIN, 0, A), acknowledged(PLAIN, UNTOLD, B))
    assert not found(*events, final(PLAIN, A, B))
    assert found(*events, final(PLAIN, A)) == ["plain-0: lost: p:1, acknowledged without an offset"]


def test_a_record_that_was_read_may_not_vanish_either() -> None:
    assert found(sent(PLAIN, A), polled(PLAIN, (0, A)), final(PLAIN)) == ["plain-0: lost: p:0 at 0"]


def test_a_power_cut_may_take_what_was_not_synced() -> None:
    events = (sent(PLAIN, A), acknowledged(PLAIN, 0, A), PowerCut(1), final(PLAIN))
    assert not found(*events)
    assert not found(sent(PLAIN, A), PowerCut(1), acknowledged(PLAIN, 0, A, life=0), final(PLAIN))


def test_a_power_cut_may_not_take_what_was_synced() -> None:
    events = (sent(SYNCED, A), acknowledged(SYNCED, 0, A), PowerCut(1), final(SYNCED))
    assert found(*events) == ["synced-0: lost: p:0 at 0"]


def test_what_was_acknowledged_after_the_power_cut_counts() -> None:
    assert found(sent(PLAIN, A), PowerCut(1), acknowledged(PLAIN, 0, A, life=1), final(PLAIN)) == [
        "plain-0: lost: p:0 at 0"
    ]


def test_an_offset_with_other_content_is_reused() -> None:
    reused = (sent(PLAIN, A, B), polled(PLAIN, (0, A)), polled(PLAIN, (0, B)))
    assert found(*reused) == ["plain-0: offset 0 reused: was p:0, polled by c: p:1"]
    assert not found(sent(PLAIN, A, B), polled(PLAIN, (0, A)), PowerCut(1), polled(PLAIN, (0, B), life=1))
    assert found(sent(SYNCED, A, B), polled(SYNCED, (0, A)), PowerCut(1), polled(SYNCED, (0, B), life=1))


def test_a_gap_is_found() -> None:
    assert found(sent(PLAIN, A, B), polled(PLAIN, (0, A), (2, B)))[0] == (
        "plain-0: polled by c: offset 2 where 1 was due"
    )


def test_a_value_that_nobody_sent_there_is_found() -> None:
    assert "never sent there" in found(polled(PLAIN, (0, A)))[0]
    assert "never sent there" in found(sent(SYNCED, A), polled(PLAIN, (0, A)))[0]


def test_a_duplicate_and_a_change_of_order_are_found_for_idempotent_producers_only() -> None:
    problem = "plain-0: what p sent is there twice or in another order"
    assert found(sent(PLAIN, A, B), final(PLAIN, A, A, B)) == [problem]
    assert found(sent(PLAIN, A, B), final(PLAIN, B, A)) == [problem]
    events: list[tuple[float, Event]] = [(0.0, sent(PLAIN, A)), (0.0, final(PLAIN, A, A))]
    assert not anomalies(events)


def test_a_producer_id_is_given_once() -> None:
    twice = found(ProducerIdGiven("p", 7, 0), ProducerIdGiven("q", 7, 0))
    assert twice == ["producer id (7, 0) given to p and to q"]


def test_a_broker_may_forget_sequences_only_after_a_power_cut_that_took_the_log() -> None:
    assert not found(PowerCut(1), SequenceForgotten("p", 1, PLAIN, 0))
    assert found(SequenceForgotten("p", 0, PLAIN, 0))
    assert found(PowerCut(1), SequenceForgotten("p", 1, SYNCED, 0))


def test_records_go_from_the_beginning_only_when_they_are_deleted() -> None:
    events = (sent(PLAIN, A, B, C), acknowledged(PLAIN, 0, A, B, C))
    assert not found(*events, Trimming(PLAIN, 2), Trimmed(PLAIN, 2), final(PLAIN, C, start=2))
    assert not found(*events, Trimming(PLAIN, 2), final(PLAIN, C, start=2))
    assert found(*events, Trimming(PLAIN, 1), Trimmed(PLAIN, 1), final(PLAIN, C, start=2)) == [
        "plain-0: begins at 2, where nobody had it begin"
    ]


def test_the_records_of_an_expiring_topic_may_go_by_themselves() -> None:
    expiring = TopicPartition("expiring", 0)
    events = (sent(expiring, A, B, C), acknowledged(expiring, 0, A, B, C))
    assert not found(*events, final(expiring, C, start=2))
    assert found(*events, final(expiring, start=2)) == ["expiring-0: lost: p:2 at 2"]


def test_deleted_records_do_not_come_back() -> None:
    events = (sent(PLAIN, A, B, C), acknowledged(PLAIN, 0, A, B, C), Trimming(PLAIN, 2), Trimmed(PLAIN, 2))
    assert found(*events, PowerCut(1), final(PLAIN, B, C, start=1)) == ["plain-0: deleted up to 2, but begins at 1"]


def test_recovery_must_leave_a_prefix() -> None:
    assert found(Recovered(PLAIN, 300, 200, False))


def test_an_unclean_election_excuses_what_the_new_leader_does_not_have() -> None:
    events = (sent(PLAIN, A, B), acknowledged(PLAIN, 0, A))
    assert not found(*events, UncleanElection(PLAIN, 1), final(PLAIN))
    assert not found(*events, UncleanElection(PLAIN, 1), acknowledged(PLAIN, 5, B, life=0), final(PLAIN))
    assert found(*events, UncleanElection(SYNCED, 1), final(PLAIN)) == ["plain-0: lost: p:0 at 0"]
    assert found(*events, UncleanElection(PLAIN, 1), acknowledged(PLAIN, 0, B, life=1), final(PLAIN)) == [
        "plain-0: lost: p:1 at 0"
    ]


def test_a_producer_that_was_forgotten_after_an_unclean_election_may_have_sent_twice() -> None:
    twice = (sent(PLAIN, A, B), SequenceForgotten("p", 1, PLAIN, 0), final(PLAIN, B, A, B))
    assert not found(UncleanElection(PLAIN, 1), *twice)
    assert found(UncleanElection(SYNCED, 1), *twice)


def test_an_unclean_election_of_a_safe_topic_is_one_too_many() -> None:
    assert anomalies([(0.0, UncleanElection(PLAIN, 1))], safe_topics={"plain"})
    assert not anomalies([(0.0, UncleanElection(PLAIN, 1))], safe_topics={"synced"})


def test_what_a_hasty_producer_is_told_promises_nothing() -> None:
    events: list[tuple[float, Event]] = [
        (0.0, sent(PLAIN, A)),
        (0.0, acknowledged(PLAIN, 0, A)),
        (0.0, final(PLAIN)),
    ]
    assert anomalies(events)
    assert not anomalies(events, hasty_producers={"p"})


def test_replicas_have_the_same_batches() -> None:
    first = FinalReplica(PLAIN, 1, ((0, b"a"), (2, b"b"), (3, b"c")))
    assert not found(first, FinalReplica(PLAIN, 2, first.batches), FinalReplica(SYNCED, 2, ()))
    assert found(first, FinalReplica(PLAIN, 2, ((0, b"a"), (2, b"x"), (3, b"c")))) == [
        "plain-0: brokers 1 and 2 diverge: at 2"
    ]
    assert found(first, FinalReplica(PLAIN, 2, first.batches[:2])) == [
        "plain-0: brokers 1 and 2 diverge: 2 batches where 3 are"
    ]


def test_replicas_may_begin_at_different_segments_below_what_was_deleted() -> None:
    first = FinalReplica(PLAIN, 1, ((0, b"a"), (2, b"b"), (3, b"c")))
    assert not found(Trimming(PLAIN, 2), first, FinalReplica(PLAIN, 2, first.batches[1:]))
    assert found(first, FinalReplica(PLAIN, 2, first.batches[1:]))


def test_after_an_unclean_election_a_follower_may_give_out_what_its_leader_does_not_have() -> None:
    before, at_the_end = (sent(PLAIN, A, B), UncleanElection(PLAIN, 1)), final(PLAIN, B)
    by_leader = polled(PLAIN, (0, A), life=1)
    by_follower = replace(by_leader, from_any_replica=True)
    assert found(*before, by_leader, at_the_end) == ["plain-0: offset 0 reused: was p:0, at the end: p:1"]
    assert not found(*before, by_follower, at_the_end)
