"""A follower's end of an incremental fetch session (KIP-227): only what is new, or no longer wanted, is said.

A session is lost with its connection, and when the leader says that it does not know it. The next request then asks for
everything anew, and names the old session, so that the leader forgets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

if TYPE_CHECKING:
    from barnabas.cluster.partition import Partition

_NONE = 0
_FIRST_EPOCH, _LAST_EPOCH = 0, 2**31 - 1
_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

Key = tuple[bytes, int]


def key_of(partition: Partition) -> Key:
    return partition.log.topic_id, partition.log.partition


class FetchSettings(NamedTuple):
    """What `replica.fetch.*` and `replica.socket.timeout.ms` say."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000
    timeout_ms: int = 30_000


class Copy:
    """One partition in one leader epoch."""

    __slots__ = ("failures", "leader_epoch", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.failures = 0

    @property
    def is_current(self) -> bool:
        return self.partition.leader_epoch == self.leader_epoch and not self.partition.log.is_offline

    def question(self, max_bytes: int) -> FetchPartition:
        log = self.partition.log
        return FetchPartition(
            partition=log.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.leader_epochs.latest,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=max_bytes,
        )


class CopySession:
    def __init__(self) -> None:
        self._id = _NONE
        self._epoch = _FIRST_EPOCH
        self._due: dict[Key, Copy] = {}  # to be asked for, or asked for anew, with the next request
        self._asked: dict[Key, Copy] = {}  # what the leader knows of
        self._unasked: dict[Key, str] = {}  # what it has yet to forget, with the topic's name

    @property
    def is_empty(self) -> bool:
        return not self._due and not self._asked

    def ask(self, key: Key, copy: Copy) -> None:
        """From where the log ends when the next request leaves."""
        self._due[key] = copy

    def unask(self, key: Key) -> None:
        self._due.pop(key, None)
        copy = self._asked.pop(key, None)
        if copy is not None:
            self._unasked[key] = copy.partition.log.topic

    def asks_for(self, key: Key, copy: Copy) -> bool:
        """Whether what the leader sends of this partition is what was asked for."""
        return self._asked.get(key) is copy

    def begin_anew(self) -> None:
        self._epoch = _FIRST_EPOCH
        self._due = {**self._asked, **self._due}
        self._asked = {}
        self._unasked = {}

    def request(self, replica: ReplicaState, settings: FetchSettings, wait_max_ms: int) -> FetchRequest:
        if self._id == _NONE:
            self.begin_anew()  # the leader has no room for another session
        topics: dict[bytes, FetchTopic] = {}
        for key, copy in self._due.items():
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(copy.partition.log.topic, key[0])
            topic.partitions.append(copy.question(settings.max_bytes))
        self._asked.update(self._due)
        self._due = {}
        return FetchRequest(
            replica_id=replica.replica_id,
            replica_state=replica,
            max_wait_ms=wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=self._forgotten(),
        )

    def _forgotten(self) -> list[ForgottenTopic]:
        forgotten: dict[bytes, ForgottenTopic] = {}
        for (topic_id, index), name in self._unasked.items():
            forgotten.setdefault(topic_id, ForgottenTopic(name, topic_id)).partitions.append(index)
        self._unasked = {}
        return list(forgotten.values())

    def answered(self, response: FetchResponse) -> None:
        """Go on with the session, or anew if the leader does not know it; ConnectionError if it refuses altogether."""
        if not response.error_code:
            self._id = response.session_id
            self._epoch = self._epoch + 1 if self._epoch < _LAST_EPOCH else _FIRST_EPOCH + 1
            return
        self._id = _NONE
        self.begin_anew()
        if response.error_code not in _LOST:
            raise ConnectionError(f"the leader refuses to be copied from: {ErrorCode(response.error_code).name}")
