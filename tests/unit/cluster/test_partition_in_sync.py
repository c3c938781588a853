"""The leader's view of its followers: how far the watermark goes, who leaves and who comes back, and who decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.events import AlteredPartition
from barnabas.cluster.image import Partition as Registration
from barnabas.cluster.isr import RETRY_MS, Lag, Members, Proposal
from barnabas.cluster.partition import Partition
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.storage.leader_epochs import EpochEntry
from barnabas.storage.log_config import LogConfig
from tests.unit.storage.storage_helpers import NOW_MS, batch, new_log

ME, A, B = 1, 2, 3
LAG = Lag(time_ms=1000)


class Leader:
    """Leads a partition of three; what it asks of the controller is the test's to answer."""

    def __init__(
        self, directory: Path, *, isr: tuple[int, ...] = (ME, A, B), lag: Lag = LAG, had: int = 0, **config: Any
    ) -> None:
        self.log = new_log(directory / "topic-0", **config)
        self.asked: list[tuple[Members, Proposal]] = []
        self.partition = Partition(
            ME, self.log, lambda _: None, lambda _, members, proposal: self.asked.append((members, proposal)), lag
        )
        for _ in range(had):
            self.log.append_as_leader(batch(), 0, NOW_MS)
        self.partition.update(Registration((ME, A, B), isr, ME, 1, 0), now_ms=0)

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def append(self, count: int = 1, acks: int = 1) -> Any:
        for _ in range(count):
            info = self.partition.append(batch(), NOW_MS, acks)
        return info

    def fetch(self, follower: int, offset: int, now_ms: int = 0, **options: Any) -> None:
        epoch = options.get("epoch", 70 + follower)
        start = options.get("start", 0)
        self.partition.follower_fetched(follower, epoch, offset, start, now_ms, may_join=options.get("may_join", True))

    def outcomes(self, info: Any) -> list[ErrorCode]:
        found: list[ErrorCode] = []
        self.partition.when_acknowledged(info, -1, found.append)
        return found

    def answer(self, *isr: int, partition_epoch: int = 1, now_ms: int = 0) -> None:
        self.partition.isr_altered(self.asked[-1][1], AlteredPartition(ME, 1, isr, partition_epoch), now_ms)

    def refuse(self, reason: ErrorCode, now_ms: int = 0) -> None:
        self.partition.isr_refused(self.asked[-1][1], reason, now_ms)


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(tmp_path)


# watermark


def test_the_watermark_follows_the_slowest_in_sync_replica(leader: Leader) -> None:
    info = leader.append(3)
    outcomes = leader.outcomes(info)
    steps = [(A, 3, 0), (B, 1, 1), (B, 2, 2), (A, 3, 2), (B, 3, 3)]
    for follower, offset, high_watermark in steps:
        leader.fetch(follower, offset)
        assert leader.high_watermark == high_watermark
    assert outcomes == [ErrorCode.NONE]


def test_the_watermark_never_goes_back_when_a_follower_does(leader: Leader) -> None:
    leader.append(3)
    for follower in (A, B):
        leader.fetch(follower, 3)
    leader.fetch(A, 1)
    assert leader.high_watermark == 3
    leader.append()
    leader.fetch(B, 4)
    assert leader.high_watermark == 3


def test_replicas_out_of_sync_do_not_hold_the_watermark_up(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(ME, A))
    leader.append(2)
    leader.fetch(A, 2)
    assert leader.high_watermark == 2


def test_the_watermark_stands_still_below_min_insync_replicas(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(ME,), min_insync_replicas=2)
    leader.append()
    assert leader.high_watermark == 0
    leader.partition.reconfigure(LogConfig(min_insync_replicas=1))
    assert leader.high_watermark == 1


def test_a_follower_of_an_earlier_life_is_not_counted(leader: Leader) -> None:
    leader.append()
    leader.fetch(A, 0, epoch=80)
    with pytest.raises(KafkaError) as refused:
        leader.fetch(A, 1, epoch=79)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_stranger_is_not_counted(leader: Leader) -> None:
    with pytest.raises(KafkaError) as refused:
        leader.fetch(9, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_knows_its_watermark_once_it_has_reached_its_own_beginning(tmp_path: Path) -> None:
    leader = Leader(tmp_path, had=3)
    assert not leader.partition.is_watermark_known
    leader.fetch(A, 3)
    leader.fetch(B, 2)
    assert not leader.partition.is_watermark_known
    leader.fetch(B, 3)
    assert leader.partition.is_watermark_known


# not enough replicas


def test_who_waits_for_all_learns_that_they_have_become_too_few(tmp_path: Path) -> None:
    leader = Leader(tmp_path, min_insync_replicas=2)
    outcomes = leader.outcomes(leader.append(acks=-1))
    committed: list[ErrorCode] = []
    leader.partition.when_committed(1, committed.append)
    leader.partition.update(Registration((ME, A, B), (ME,), ME, 1, 1))
    assert outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert committed == []  # a coordinator's record may still come to count
    with pytest.raises(KafkaError) as refused:
        leader.append(acks=-1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    leader.partition.update(Registration((ME, A, B), (ME, A), ME, 1, 2))
    leader.fetch(A, 1)
    assert committed == [ErrorCode.NONE]


# leaving


def test_a_follower_that_lags_too_long_is_proposed_to_leave_and_counts_until_it_has(leader: Leader) -> None:
    leader.append(2)
    leader.fetch(A, 2, 500)
    leader.fetch(B, 1, 500)
    leader.partition.drop_lagging(1000)
    assert leader.asked == []
    leader.fetch(A, 2, 1400)
    leader.partition.drop_lagging(1600)
    assert [members for members, _ in leader.asked] == [((ME, -1), (A, 72))]
    assert leader.high_watermark == 1
    leader.partition.drop_lagging(1700)
    assert len(leader.asked) == 1  # one at a time
    leader.answer(ME, A)
    assert leader.partition.isr == (ME, A)
    assert leader.high_watermark == 2


def test_a_follower_that_keeps_pace_under_load_stays(leader: Leader) -> None:
    """It never has all, but at each fetch has what there was at the one before."""
    end = 0
    for now_ms in range(0, 5000, 100):
        leader.fetch(A, end, now_ms)
        leader.fetch(B, end, now_ms)
        end = leader.append().last_offset + 1
        leader.append()
        end += 1
        leader.append()  # what comes after its fetch was answered
        leader.partition.drop_lagging(now_ms)
        end = leader.log.log_end_offset - 1
    assert leader.asked == []


def test_an_idle_follower_that_has_all_stays_however_long(leader: Leader) -> None:
    for follower in (A, B):
        leader.fetch(follower, 0, 0)
    leader.partition.drop_lagging(10**9)
    assert leader.asked == []


def test_a_follower_may_be_asked_not_to_lag_by_more_than_some_messages(tmp_path: Path) -> None:
    leader = Leader(tmp_path, lag=Lag(time_ms=1000, messages=2))
    leader.append(5)
    leader.fetch(A, 3)
    leader.fetch(B, 2)
    leader.partition.drop_lagging(10)
    assert [members for members, _ in leader.asked] == [((ME, -1), (A, 72))]


# coming back


@pytest.mark.parametrize(
    ("offset", "may_join", "joins"),
    [(4, True, True), (5, True, True), (3, True, False), (5, False, False)],
    ids=["at the watermark", "at the end", "below the watermark", "fenced"],
)
def test_a_follower_comes_back_when_it_has_what_is_committed(
    tmp_path: Path, offset: int, may_join: bool, joins: bool
) -> None:
    leader = Leader(tmp_path, isr=(ME, A))
    leader.append(5)
    leader.fetch(A, 4)
    leader.fetch(B, offset, may_join=may_join)
    assert [members for members, _ in leader.asked] == ([((ME, -1), (A, 72), (B, 73))] if joins else [])


def test_a_follower_must_have_what_the_leader_had_at_its_election(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(ME, A), had=3)
    leader.fetch(B, 2)
    assert leader.asked == []
    leader.fetch(B, 3)
    assert len(leader.asked) == 1


def test_a_proposed_member_counts_before_the_answer(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(ME, A))
    leader.fetch(B, 0)
    assert len(leader.asked) == 1
    leader.append()
    leader.fetch(A, 1)
    assert leader.high_watermark == 0
    leader.answer(ME, A, B)
    leader.fetch(B, 1)
    assert leader.high_watermark == 1


# answers


def proposed(tmp_path: Path) -> Leader:
    """B was proposed as a member, and does not have the last record."""
    leader = Leader(tmp_path, isr=(ME, A))
    leader.fetch(B, 0)
    leader.append()
    leader.fetch(A, 1)
    assert leader.high_watermark == 0
    return leader


@pytest.mark.parametrize("reason", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refused_proposal_is_taken_back_and_made_again_after_a_pause(tmp_path: Path, reason: ErrorCode) -> None:
    leader = proposed(tmp_path)
    leader.refuse(reason)
    assert leader.high_watermark == 1
    leader.fetch(B, 1, 1)
    assert len(leader.asked) == 1
    leader.fetch(B, 1, RETRY_MS)
    assert len(leader.asked) == 2


@pytest.mark.parametrize(
    "reason",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_a_proposal_that_may_have_been_carried_out_stands_until_the_metadata_tell(
    tmp_path: Path, reason: ErrorCode
) -> None:
    leader = proposed(tmp_path)
    leader.refuse(reason)
    leader.fetch(A, 1, 10 * RETRY_MS)
    assert (leader.high_watermark, len(leader.asked)) == (0, 1)
    leader.partition.update(Registration((ME, A, B), (ME, A), ME, 1, 1))
    assert leader.high_watermark == 1


def test_an_answer_that_was_lost_is_asked_for_again_with_the_same_proposal(tmp_path: Path) -> None:
    leader = proposed(tmp_path)
    leader.refuse(ErrorCode.REQUEST_TIMED_OUT)
    leader.fetch(A, 1, RETRY_MS - 1)
    assert len(leader.asked) == 1
    leader.fetch(A, 1, RETRY_MS)
    assert [[member for member, _ in members] for members, _ in leader.asked] == [[ME, A, B]] * 2
    assert leader.high_watermark == 0


def test_an_answer_outdated_by_the_metadata_changes_nothing(tmp_path: Path) -> None:
    leader = proposed(tmp_path)
    leader.partition.update(Registration((ME, A, B), (ME,), ME, 1, 2))
    leader.answer(ME, A, B, partition_epoch=1)
    assert leader.partition.isr == (ME,)
    assert leader.high_watermark == 1


def test_metadata_older_than_the_answer_change_nothing(tmp_path: Path) -> None:
    leader = proposed(tmp_path)
    leader.answer(ME, A, B, partition_epoch=5)
    leader.partition.update(Registration((ME, A, B), (ME, A), ME, 1, 4))
    assert (leader.partition.isr, leader.partition.partition_epoch) == ((ME, A, B), 5)


def test_without_a_controller_to_ask_the_set_stays(tmp_path: Path) -> None:
    log = new_log(tmp_path / "topic-0")
    partition = Partition(ME, log, lambda _: None)
    partition.update(Registration((ME, A), (ME, A), ME, 1, 0))
    log.append_as_leader(batch(), 1, NOW_MS)
    partition.drop_lagging(10**6)
    assert partition.isr == (ME, A)
    assert partition.in_sync is not None
    assert partition.in_sync.maximal == (ME, A)


# divergence


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [
        (5, 7, None),
        (3, 4, None),
        (2, 4, None),
        (4, 4, EpochEntry(4, 3)),
        (4, 5, EpochEntry(4, 3)),
        (1, 6, EpochEntry(4, 3)),
        (9, 7, EpochEntry(7, 5)),
    ],
)
def test_readers_learn_where_their_log_differs(
    tmp_path: Path, offset: int, epoch: int, diverging: EpochEntry | None
) -> None:
    """Here epoch 4 wrote 0 to 2, and epoch 7 wrote 3 and 4."""
    log = new_log(tmp_path / "topic-0")
    partition = Partition(ME, log, lambda _: None)
    for leader_epoch, count in ((4, 3), (7, 2)):
        partition.update(Registration((ME,), (ME,), ME, leader_epoch, 0))
        for _ in range(count):
            partition.append(batch(), NOW_MS, 1)
    assert partition.divergence(offset, epoch) == diverging


def test_an_epoch_of_the_future_is_out_of_range(leader: Leader) -> None:
    with pytest.raises(KafkaError) as refused:
        leader.partition.divergence(0, 99)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("diverging", "end"),
    [
        (EpochEntry(4, 2), 2),  # the leader's epoch 4 ended earlier
        (EpochEntry(5, 3), 3),  # epoch 5 is not known here: to the end of epoch 4
        (EpochEntry(5, 9), 3),
        (EpochEntry(7, 4), 4),
        (EpochEntry(2, 1), 0),  # older than all that is here
    ],
)
def test_a_follower_cuts_where_the_leaders_epoch_ended(tmp_path: Path, diverging: EpochEntry, end: int) -> None:
    """Here epoch 4 wrote 0 to 2, and epoch 7 wrote 3 and 4."""
    log = new_log(tmp_path / "topic-0")
    partition = Partition(ME, log, lambda _: None)
    for leader_epoch, count in ((4, 3), (7, 2)):
        for _ in range(count):
            log.append_as_leader(batch(), leader_epoch, NOW_MS)
    partition.truncate_by_epoch(diverging)
    assert log.log_end_offset == end


# low watermark


def test_records_are_deleted_everywhere_once_the_in_sync_followers_say_so(leader: Leader) -> None:
    leader.append(5)
    for follower in (A, B):
        leader.fetch(follower, 5)
    outcomes: list[ErrorCode] = []
    leader.partition.delete_records(4)
    leader.partition.when_deleted(4, outcomes.append)
    assert leader.partition.low_watermark == 0
    leader.fetch(A, 5, start=4)
    assert outcomes == []
    leader.fetch(B, 5, start=4)
    assert outcomes == [ErrorCode.NONE]
    assert leader.partition.low_watermark == 4


def test_a_follower_that_leaves_is_not_waited_for_with_deletions(leader: Leader) -> None:
    leader.append(2)
    for follower in (A, B):
        leader.fetch(follower, 2)
    leader.partition.delete_records(1)
    outcomes: list[ErrorCode] = []
    leader.partition.when_deleted(1, outcomes.append)
    leader.fetch(A, 2, start=1)
    leader.partition.update(Registration((ME, A, B), (ME, A), ME, 1, 1))
    assert outcomes == [ErrorCode.NONE]


# waking followers


@pytest.mark.parametrize("watermark", [True, False])
def test_followers_are_woken_by_appends_and_by_the_watermark_if_they_wish(leader: Leader, watermark: bool) -> None:
    class Watcher:
        told = 0

        def data_arrived(self, partition: Partition, size_bytes: int) -> None:
            self.told += 1

    follower, consumer = Watcher(), Watcher()
    leader.partition.watch_tail(follower, watermark=watermark)
    leader.partition.watch(consumer)
    events: list[tuple[Callable[[], Any], int, int]] = [
        (lambda: leader.append(), 1, 0),
        (lambda: leader.fetch(A, 1), 1, 0),
        (lambda: leader.fetch(B, 1), 1 + watermark, 1),
        (lambda: leader.partition.delete_records(1), 2 + watermark, 1),
    ]
    for act, for_follower, for_consumer in events:
        act()
        assert (follower.told, consumer.told) == (for_follower, for_consumer)
