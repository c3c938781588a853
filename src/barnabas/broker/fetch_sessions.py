"""Incremental fetch sessions (KIP-227): what a consumer or a replica asked for is remembered, and only changes travel.

A session is opened by a full fetch with epoch 0, and each later fetch of it carries the next epoch; epoch -1 ends it,
or does without one. An incremental response leaves out partitions about which there is nothing new. When the cache is
full, a session that nobody used for two minutes makes room, and otherwise the client is told (session id 0) to go on
without. For a replica any consumer makes room, and for a consumer no replica does; to claim to be one is not enough.

Pure: owned by the broker's loop, time and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

from barnabas.broker.copied_partitions import CopiedPartitions
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.storage.log import Log
    from barnabas.wire.messages.k01_fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION = 0
_INITIAL_EPOCH = 0
_FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1
_EVICTABLE_AFTER_MS = 120_000


class Wanted:
    """One partition that a fetch asks for, and what was last said about it."""

    __slots__ = ("high_watermark", "log_start_offset", "partition", "sent_from", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, partition: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.high_watermark = -1
        self.log_start_offset = -1
        self.sent_from = -1
        """The offset at which the latest records that were sent begin."""

    def is_told(self, log: Log) -> bool:
        """Whether the reader knows the offsets of the log as they are now."""
        return self.high_watermark == log.high_watermark and self.log_start_offset == log.log_start_offset

    def is_news(self, data: PartitionData) -> bool:
        """Whether an incremental response must carry `data`; if so, remembers it as said."""
        news = bool(
            data.error_code
            or (data.records is not None and len(data.records))
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch.end_offset >= 0
            or data.preferred_read_replica >= 0
        )
        # An error is forgotten, so that the first success after it is told even if nothing else changed.
        self.high_watermark = -1 if data.error_code else data.high_watermark
        self.log_start_offset = -1 if data.error_code else data.log_start_offset
        return news


class FetchSession:
    """What one consumer or replica wants, in the order in which it will be served next."""

    __slots__ = ("by_topic_id", "copied", "epoch", "id", "is_incremental", "last_used_ms", "wanted")

    def __init__(self, session_id: int, by_topic_id: bool, copied: CopiedPartitions | None = None) -> None:
        self.id = session_id
        self.epoch = _INITIAL_EPOCH
        self.by_topic_id = by_topic_id
        self.copied = copied
        self.is_incremental = False
        self.last_used_ms = 0
        self.wanted: dict[tuple[str | bytes, int], Wanted] = {}

    def ask(self, request: FetchRequest) -> None:
        for forgotten in request.forgotten_topics_data:
            topic = forgotten.topic_id if self.by_topic_id else forgotten.topic
            for index in forgotten.partitions:
                wanted = self.wanted.pop((topic, index), None)
                if wanted is not None and self.copied is not None:
                    self.copied.forget(wanted)
        for asked in request.topics:
            topic = asked.topic_id if self.by_topic_id else asked.topic
            for partition in asked.partitions:
                wanted = self.wanted.get((topic, partition.partition))
                if wanted is None:
                    wanted = Wanted(asked.topic, asked.topic_id, partition)
                    self.wanted[topic, partition.partition] = wanted
                else:
                    wanted.partition = partition
                if self.copied is not None:
                    self.copied.ask(wanted)

    @property
    def is_privileged(self) -> bool:
        return self.copied is not None and self.copied.is_believed

    def close(self) -> None:
        """Nobody asks again."""
        if self.copied is not None:
            self.copied.close()

    def select(self, results: Iterable[tuple[Wanted, PartitionData]]) -> list[tuple[Wanted, PartitionData]]:
        """What of the results to send. Partitions that had data go to the end of the queue, so that none starves."""
        selected = []
        for wanted, data in results:
            if wanted.is_news(data) or not self.is_incremental:
                selected.append((wanted, data))
            if self.copied is None and data.records is not None and len(data.records):
                wanted.sent_from = wanted.partition.fetch_offset
                key = (wanted.topic_id if self.by_topic_id else wanted.topic, data.partition_index)
                if self.wanted.pop(key, None) is not None:
                    self.wanted[key] = wanted
        return selected


class FetchSessions:
    """The sessions of one broker, the least recently used first."""

    def __init__(self, slots: int, random: Random) -> None:
        self._slots = slots
        self._random = random
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FetchRequest, by_topic_id: bool, now_ms: int, copied: CopiedPartitions | None = None
    ) -> FetchSession:
        """The session that a request belongs to, brought up to date with what it says.

        `copied` is a new one, for a request that comes from a replica and may have to begin a session.
        """
        if request.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            self._close(request.session_id)
            session = FetchSession(NO_SESSION, by_topic_id, copied)
            if request.session_epoch == _INITIAL_EPOCH:
                self._open(session, now_ms)
        else:
            session = self._continue(request, by_topic_id, now_ms, copied)
        session.ask(request)
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _open(self, session: FetchSession, now_ms: int) -> None:
        if len(self._sessions) >= self._slots:
            oldest = next((each for each in self._sessions.values() if not each.is_privileged), None)
            if oldest is None or (not session.is_privileged and now_ms - oldest.last_used_ms < _EVICTABLE_AFTER_MS):
                return
            self._close(oldest.id)
        while session.id == NO_SESSION or session.id in self._sessions:
            session.id = self._random.randrange(1, 2**31)
        session.epoch = _INITIAL_EPOCH + 1
        session.last_used_ms = now_ms
        self._sessions[session.id] = session

    def _continue(
        self, request: FetchRequest, by_topic_id: bool, now_ms: int, copied: CopiedPartitions | None
    ) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None or not _same_reader(session.copied, copied):
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_topic_id != by_topic_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.is_incremental = True
        session.epoch = session.epoch + 1 if session.epoch < _LAST_EPOCH else 1
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)  # now the most recently used
        return session

    def drop_replica(self, replica_id: int, broker_epoch: int) -> None:
        """A broker has registered again: what it asked for under an earlier epoch is nobody's."""
        for session in list(self._sessions.values()):
            copied = session.copied
            if copied is not None and copied.replica_id == replica_id and copied.broker_epoch != broker_epoch:
                self._close(session.id)


def _same_reader(known: CopiedPartitions | None, asking: CopiedPartitions | None) -> bool:
    """A replica's session is for that replica under its present broker epoch, and a consumer's for no replica."""
    if known is None or asking is None:
        return known is asking
    return (known.replica_id, known.broker_epoch) == (asking.replica_id, asking.broker_epoch)
