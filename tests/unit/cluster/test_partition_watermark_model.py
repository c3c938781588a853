"""Whatever happens between a leader, its followers and the controller, what is committed is where it must be.

The controller's state is the truth. The leader learns of it late, by answers that may be lost and by metadata that may
come in between; followers tell late how far they are. At every moment:

- every member of the committed in-sync replicas has all that lies below the leader's watermark;
- the watermark has not gone back, and has not moved while the leader knew too few replicas to be in sync;
- what was acknowledged is on every member.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.cluster.events import AlteredPartition
from barnabas.cluster.image import Partition as Registration
from barnabas.cluster.isr import RETRY_MS, Lag, Members, Proposal
from barnabas.cluster.partition import Partition
from barnabas.core.errors import ErrorCode, KafkaError
from tests.unit.storage.storage_helpers import NOW_MS, batch, new_log

ME, FOLLOWERS = 1, (2, 3)
MIN_ISR = 2
LAG = Lag(time_ms=1000)


class LeaderModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="barnabas-model-"))
        self.log = new_log(self.directory / "topic-0", min_insync_replicas=MIN_ISR)
        self.partition = Partition(ME, self.log, lambda _: None, self._ask, LAG)
        self.truth = Registration((ME, *FOLLOWERS), (ME, *FOLLOWERS), ME, 1, 0)
        self.untold: list[Registration] = []
        self.requests: list[tuple[Members, Proposal, int]] = []
        self.has = dict.fromkeys(FOLLOWERS, 0)
        self.fetches: list[tuple[int, int]] = []
        self.now_ms = 0
        self.acknowledged = 0
        self.reached = 0
        self.were_enough = True

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.directory)

    def _ask(self, partition: Partition, members: Members, proposal: Proposal) -> None:
        self.requests.append((members, proposal, partition.partition_epoch))

    @initialize(had=st.integers(0, 3), isr=st.sampled_from(((ME, 2), (ME, 3), (ME, 2, 3), (ME,))))
    def lead(self, had: int, isr: tuple[int, ...]) -> None:
        self.truth = replace(self.truth, isr=isr)
        for _ in range(had):
            self.log.append_as_leader(batch(), 0, NOW_MS)
        self.has = dict.fromkeys(FOLLOWERS, had)
        self.partition.update(self.truth, self.now_ms)

    # clients

    @rule(acks=st.sampled_from((1, -1)))
    def append(self, acks: int) -> None:
        if acks == -1 and len(self.partition.isr) < MIN_ISR:
            with pytest.raises(KafkaError):
                self.partition.append(batch(), NOW_MS, acks)
            return
        info = self.partition.append(batch(), NOW_MS, acks)
        if acks == -1:
            self.partition.when_acknowledged(info, -1, lambda code: self._settled(info.last_offset, code))

    def _settled(self, offset: int, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self.acknowledged = max(self.acknowledged, offset + 1)
        else:
            assert code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # followers

    @rule(follower=st.sampled_from(FOLLOWERS), count=st.integers(0, 3), is_late=st.booleans())
    def copy(self, follower: int, count: int, is_late: bool) -> None:
        """It gets some records, and sends a fetch for the next ones."""
        self.has[follower] = min(self.has[follower] + count, self.log.log_end_offset)
        self.fetches.append((follower, self.has[follower]))
        if not is_late:
            self.deliver_fetches()

    @precondition(lambda self: self.fetches)
    @rule()
    def deliver_fetches(self) -> None:
        fetches, self.fetches = self.fetches, []
        for follower, offset in fetches:
            self.partition.follower_fetched(follower, 70, offset, 0, self.now_ms, may_join=True)

    @rule(passed_ms=st.sampled_from((1, RETRY_MS, 600, 2000)))
    def let_time_pass(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.partition.drop_lagging(self.now_ms)

    # the controller

    @precondition(lambda self: self.requests)
    @rule(course=st.sampled_from(("done", "done and not heard", "not heard of", "ineligible")))
    def decide(self, course: str) -> None:
        """Carry a proposal out or refuse it; question or answer may be lost."""
        members, proposal, partition_epoch = self.requests.pop(0)
        answer: AlteredPartition | ErrorCode = ErrorCode.REQUEST_TIMED_OUT
        if course != "not heard of":
            if partition_epoch != self.truth.partition_epoch:
                answer = ErrorCode.INVALID_UPDATE_VERSION
            elif course == "ineligible":
                answer = ErrorCode.INELIGIBLE_REPLICA
            else:
                self._change(tuple(member for member, _ in members))
                answer = AlteredPartition(ME, 1, self.truth.isr, self.truth.partition_epoch)
        if course == "done and not heard":
            answer = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(answer, AlteredPartition):
            self.partition.isr_altered(proposal, answer, self.now_ms)
        else:
            self.partition.isr_refused(proposal, answer, self.now_ms)

    @rule(follower=st.sampled_from(FOLLOWERS))
    def fence(self, follower: int) -> None:
        if follower in self.truth.isr:
            self._change(tuple(member for member in self.truth.isr if member != follower))

    def _change(self, isr: tuple[int, ...]) -> None:
        self.truth = replace(self.truth, isr=isr, partition_epoch=self.truth.partition_epoch + 1)
        self.untold.append(self.truth)

    @precondition(lambda self: self.untold)
    @rule()
    def tell_metadata(self) -> None:
        self.partition.update(self.untold.pop(0), self.now_ms)

    # what must hold

    @invariant()
    def committed_records_are_on_all_in_sync_replicas(self) -> None:
        high_watermark = self.log.high_watermark
        for member in self.truth.isr:
            assert member == ME or self.has[member] >= high_watermark
        assert self.reached <= high_watermark <= self.log.log_end_offset
        assert self.acknowledged <= high_watermark
        are_enough = len(self.partition.isr) >= MIN_ISR
        assert high_watermark == self.reached or are_enough or self.were_enough
        self.reached, self.were_enough = high_watermark, are_enough


LeaderModel.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
test_the_watermark_is_safe = LeaderModel.TestCase
