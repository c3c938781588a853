"""What a broker's answer means for a partition's place: records, a log that was cut, an offset out of range, errors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from barnabas.client.consume.chunks import Chunk, scan
from barnabas.client.consume.consumer_errors import CorruptRecords, LogTruncated, NoOffset
from barnabas.client.consume.positions import Begin, PartitionState
from barnabas.client.errors import refused
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import CorruptBatch

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.consume.complaints import Complaints
    from barnabas.client.consume.fetch_options import FetchOptions
    from barnabas.client.metadata import BrokerInfo

log = logging.getLogger(__name__)

_GONE_SECONDS = 3.0
"""How long the cluster must say that a topic is not there which was, before its reader is told."""


class FetchAnswers:
    """What the caller must decide goes to the complaints; what may pass is asked for again after a pause."""

    def __init__(self, client: Client, options: FetchOptions, complaints: Complaints) -> None:
        self._client = client
        self._options = options
        self._complaints = complaints

    def apply(self, broker: BrokerInfo, state: PartitionState, offset: int, data: Any) -> Chunk | None:
        """What came of asking a broker for the records from an offset on: the records, if there are any."""
        is_truncated = data.diverging_epoch.end_offset >= 0
        if state.read_replica == broker.node_id and (is_truncated or data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE):
            state.read_replica = None  # it may be behind: only the leader's word counts
        elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state, offset)
        elif data.error_code != ErrorCode.NONE:
            state.read_replica = None
            self._client.metadata.forget([state.partition.topic])
            self.failed(state, refused(data.error_code, f"cannot read {state.partition}"))
        elif is_truncated:
            self._diverged(state, data.diverging_epoch)
        else:
            return self._succeeded(state, offset, data)
        return None

    def _succeeded(self, state: PartitionState, offset: int, data: Any) -> Chunk | None:
        state.succeeded()
        self._complaints.withdraw(state.partition)
        state.high_watermark = data.high_watermark
        if data.preferred_read_replica >= 0:
            state.read_replica = data.preferred_read_replica
            state.read_replica_until = self._client.clock.monotonic() + self._options.metadata_max_age_ms / 1000
        if not data.records:
            return None
        try:
            return scan(data.records, offset, data.aborted_transactions or (), check_crcs=self._options.check_crcs)
        except CorruptBatch as error:
            self._tell(state, CorruptRecords(state.partition, offset, error))
            return None

    def _out_of_range(self, state: PartitionState, offset: int) -> None:
        if self._options.auto_offset_reset == "none":
            self._tell(state, NoOffset(state.partition, offset))
        else:
            reset = self._options.auto_offset_reset
            log.warning("%s does not hold offset %d; going on from the %s one", state.partition, offset, reset)
            state.lose_fetch_offset()

    def _diverged(self, state: PartitionState, diverging: Any) -> None:
        position = state.position
        assert position is not None
        if position <= diverging.end_offset:
            state.place(position, diverging.epoch)
            return
        error = LogTruncated(state.partition, position, diverging.end_offset)
        if self._options.auto_offset_reset == "none":
            self._tell(state, error)
        else:
            log.warning("%s", error)
            state.place(diverging.end_offset, diverging.epoch)

    def made_anew(self, state: PartitionState) -> None:
        """Another topic of the same name: offsets of the old one mean nothing in it."""
        if self._options.auto_offset_reset == "none":
            self._tell(state, NoOffset(state.partition, state.fetch_offset))
            return
        log.warning("topic %s was deleted and made anew; reading it from its beginning", state.partition.topic)
        state.displace(Begin.EARLIEST)

    def failed(self, state: PartitionState, error: KafkaError) -> None:
        """Ask again after a pause; tell the caller of what cannot pass, or has not passed for too long."""
        now = self._client.clock.monotonic()
        if state.failing_since is None:
            state.failing_since = now
        is_gone = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and state.topic_id is not None
        patience = self._client.retry_timeout_ms / 1000
        if is_gone:
            patience = min(patience, _GONE_SECONDS)
        if not error.retriable or now - state.failing_since > patience:
            state.failing_since = None
            if is_gone and self._options.topics_may_go:
                log.warning("%s: reading on without it", error)
            else:
                self._complaints.add(state.partition, error)
        self._pause(state)

    def _tell(self, state: PartitionState, error: KafkaError) -> None:
        """The caller decides; asked again after a pause if that changes nothing."""
        self._complaints.add(state.partition, error)
        self._pause(state)

    def _pause(self, state: PartitionState) -> None:
        state.retry_at = self._client.clock.monotonic() + self._client.backoff_seconds(state.failures)
        state.failures += 1
