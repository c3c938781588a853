"""The partitions that this broker hosts, kept in step with the cluster's metadata.

Changes of the image are applied one after the other, in the order in which they came. Making and removing directories
takes its time, so whoever has changed the metadata and wants to see the effect awaits `settled`, or `usable`.

A replica whose log is damaged begins anew with an empty one, once it is out of the in-sync replicas: under the leader
epoch that came with its leaving nobody has heard from it yet, so nobody can count on what it no longer has. Its old
files are kept until the new ones are in sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.cluster.events import Failure
from barnabas.cluster.image import TOPIC_RESOURCE
from barnabas.cluster.isr import DEFAULT_LAG
from barnabas.cluster.partition import Partition
from barnabas.cluster.records import NO_LEADER
from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.cluster.delta import Delta
    from barnabas.cluster.events import AlteredPartition
    from barnabas.cluster.image import Image, Topic
    from barnabas.cluster.image import Partition as Registration
    from barnabas.cluster.isr import Lag, Members, Proposal
    from barnabas.storage.log import Log
    from barnabas.storage.log_config import LogConfig
    from barnabas.storage.manager import LogManager

_LAG_CHECK_SECONDS = 0.5  # where followers leave for the number of records that they lack, which is soon reached
_WORTH_WAITING_FOR = 200  # new partitions
_UNREADABLE = "its files cannot be opened"
_log = logs.get_logger(__name__)


class Damaged(NamedTuple):
    """A replica that is not what it was; the leader epoch is the one that it knows of, if its log could be opened."""

    topic: str
    partition: int
    leader_epoch: int | None
    problem: str


class LeadershipFollower(Protocol):
    """Somebody whose work follows the leadership of a topic's partitions: a coordinator."""

    def follow(self, partition: Partition) -> None: ...

    def drop(self, index: int) -> None: ...


class Fetchers(Protocol):
    """Those who copy from the leaders."""

    def follow(self, partition: Partition) -> None:
        """Copy the partition from the leader that it has now, which may be none, or this broker: then from nobody."""
        ...

    def drop(self, partition: Partition) -> None: ...


AskForIsr = Callable[[Partition, "Members"], "asyncio.Future[AlteredPartition | Failure]"]
"""Has the controller change a partition's in-sync replicas; a refusal may be a Failure or a KafkaError."""


class Replicas:
    """Owned by the broker's loop. `config_of` gives a topic's settings as they are now."""

    def __init__(self, broker_id: int, manager: LogManager, config_of: Callable[[str], LogConfig]) -> None:
        self.broker_id = broker_id
        self.manager = manager
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.topic_names: Mapping[bytes, str] = {}
        self._topics: Mapping[str, Topic] = {}
        self._coordinators: Mapping[str, LeadershipFollower] = {}  # by the internal topic that they stand on
        self.fetchers: Fetchers | None = None
        self.alter_isr: AskForIsr | None = None
        self.lag: Lag = DEFAULT_LAG
        self._config_of = config_of
        self._changes: asyncio.Queue[tuple[Delta, Image]] = asyncio.Queue()
        self._unmade = 0  # new partitions in changes that are yet to be applied
        self._flushing: set[asyncio.Future[int]] = set()
        self._unopened: set[tuple[str, int]] = set()  # ours, but their disk does not let us
        self._old_files: dict[tuple[str, int], str] = {}  # of replicas that began anew, and are not in sync yet
        self.renewals = 0

    # look-up

    def get(self, topic: str, index: int) -> Partition:
        partition = self.partitions.get((topic, index))
        if partition is None:
            if (topic, index) in self._unopened:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{index} could not be opened")
            if self._is_elsewhere(topic, index):  # whoever asks is to look where
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is on other brokers")
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index} here")
        if partition.log.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {topic}-{index} has failed")
        return partition

    def _is_elsewhere(self, topic: str, index: int) -> bool:
        found = self._topics.get(topic)
        return (
            found is not None
            and 0 <= index < len(found.partitions)
            and self.broker_id not in found.partitions[index].replicas
        )

    def name_of(self, topic_id: bytes) -> str:
        name = self.topic_names.get(topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return name

    # metadata

    def follow(self, delta: Delta, image: Image) -> None:
        """Take note of a change; `run` applies it."""
        self._unmade += _new_partitions(delta)
        self._changes.put_nowait((delta, image))

    def coordinate(self, coordinators: Mapping[str, LeadershipFollower]) -> None:
        """Let coordinators follow the leadership of their internal topics, by topic, from now on."""
        self._coordinators = coordinators
        for (topic, _), partition in self.partitions.items():
            if topic in coordinators:
                coordinators[topic].follow(partition)

    async def settled(self) -> None:
        """Wait until every change that was noted so far is in effect."""
        await self._changes.join()

    async def usable(self) -> None:
        """As `settled`, so that who has asked for a change can use it at once, but not while very many logs are made.

        Clients know how to wait for a partition, and would rather hear that it is decided.
        """
        if self._unmade <= _WORTH_WAITING_FOR:
            await self.settled()

    async def run(self) -> None:
        while True:
            delta, image = await self._changes.get()
            try:
                await self._apply(delta, image)
            except Exception:  # one change that goes wrong must not keep later ones from being applied
                _log.exception("metadata change could not be applied")
            finally:
                self._unmade -= _new_partitions(delta)
                self._changes.task_done()

    async def _apply(self, delta: Delta, image: Image) -> None:
        for topic in delta.deleted:
            for index in range(len(topic.partitions)):
                await self._remove(topic.name, index, topic.id)
        self.topic_names = image.topic_names
        self._topics = image.topics
        for topic in delta.created:
            await self._update(topic, range(len(topic.partitions)))
        for name, indexes in delta.partitions.items():
            await self._update(image.topics[name], indexes)
        for resource in sorted(delta.configs):
            if resource.type == TOPIC_RESOURCE and resource.name in image.topics:
                self.reconfigure(image.topics[resource.name])

    async def _update(self, topic: Topic, indexes: range | tuple[int, ...]) -> None:
        await self._make_logs(topic, indexes)
        for index in indexes:
            registration = topic.partitions[index]
            if self.broker_id not in registration.replicas:
                await self._remove(topic.name, index, topic.id)
                continue
            key = (topic.name, index)
            if key in self._unopened and not await self._gives_up_files(key, registration):
                continue  # until a restart finds it, or it would begin anew with nothing in it
            partition = self.partitions.get(key)
            if partition is not None and self._begins_anew(partition, registration):
                await self._give_up_log(partition)
                partition = None
            if partition is None:
                try:
                    log = await self.manager.get_or_create(topic.name, index, topic.id, self._config_of(topic.name))
                except (OSError, KafkaError, ValueError) as error:  # a failing disk, or damaged files
                    self._unopened.add(key)
                    _log.error("log could not be opened", topic=topic.name, partition=index, problem=str(error))
                    continue
                partition = self.partitions[key] = Partition(
                    self.broker_id, log, self._start_flush, self._ask_for_isr, self.lag
                )
            partition.update(registration, self._now_ms())
            if key in self._old_files and self.broker_id in registration.isr:
                _log.info("replica is in sync again; the damaged files go", topic=topic.name, partition=index)
                self._remove_old_files(key)
            if self.fetchers is not None:
                self.fetchers.follow(partition)
            if topic.name in self._coordinators:
                self._coordinators[topic.name].follow(partition)

    async def _make_logs(self, topic: Topic, indexes: range | tuple[int, ...]) -> None:
        """Many at once cost less, and followers ask their leaders for them together."""
        new = [
            index
            for index in indexes
            if self.broker_id in topic.partitions[index].replicas
            and (topic.name, index) not in self.partitions
            and (topic.name, index) not in self._unopened
        ]
        if not new:
            return
        try:
            await self.manager.create_many(topic.name, new, topic.id, self._config_of(topic.name))
        except (OSError, KafkaError) as error:
            _log.warning("logs are made one by one", topic=topic.name, problem=str(error))

    async def _remove(self, topic: str, index: int, topic_id: bytes) -> None:
        self._unopened.discard((topic, index))
        self.manager.unreadable_logs.pop((topic, index), None)
        partition = self.partitions.get((topic, index))
        if partition is not None and partition.log.topic_id == topic_id:
            if (topic, index) in self._old_files:
                self._remove_old_files((topic, index))
            self._forget(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            await self.manager.delete(partition.log)

    def _forget(self, partition: Partition, reason: ErrorCode) -> None:
        topic, index = partition.log.topic, partition.log.partition
        del self.partitions[topic, index]
        if self.fetchers is not None:
            self.fetchers.drop(partition)
        if topic in self._coordinators:
            self._coordinators[topic].drop(index)
        partition.resign(reason)

    # damage

    def damaged(self) -> list[Damaged]:
        """The replicas that have lost records which they once had, as far as is known."""
        found = [
            Damaged(*key, partition.leader_epoch, partition.log.damage)
            for key, partition in self.partitions.items()
            if partition.log.damage and not partition.log.is_offline
        ]
        return found + [Damaged(*key, None, _UNREADABLE) for key in self.manager.unreadable_logs]

    def _begins_anew(self, partition: Partition, registration: Registration) -> bool:
        return bool(
            partition.log.damage
            and not partition.log.is_offline
            and self.manager.is_taken_up  # else the metadata may be of an earlier life of this broker
            and registration.leader_epoch > partition.leader_epoch
            and self._is_not_counted_on(registration)
        )

    def _is_not_counted_on(self, registration: Registration) -> bool:
        complete = (*registration.isr, *registration.eligible_leader_replicas)
        return registration.leader not in (self.broker_id, NO_LEADER) and self.broker_id not in complete

    async def _gives_up_files(self, key: tuple[str, int], registration: Registration) -> bool:
        """Whether a log that is too damaged to be opened could be put away, for a new one to be made."""
        if not self.manager.is_taken_up or not self._is_not_counted_on(registration):
            return False
        path = await self.manager.put_away(*key)
        if path is None:
            return False
        self._unopened.discard(key)
        self._old_files[key] = path
        self._tell_of_renewal(key, _UNREADABLE)
        return True

    async def _give_up_log(self, partition: Partition) -> None:
        log = partition.log
        key = (log.topic, log.partition)
        self._forget(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if key in self._old_files:
            await self.manager.delete(log)  # damaged before it was complete; the older files were
        elif (path := await self.manager.replace(log)) is not None:
            self._old_files[key] = path
        self._tell_of_renewal(key, log.damage)

    def _tell_of_renewal(self, key: tuple[str, int], damage: str) -> None:
        self.renewals += 1
        _log.warning("damaged replica is fetched anew; its files are kept until it is in sync", topic=key[0],
                     partition=key[1], kept=self._old_files.get(key), damage=damage)  # fmt: skip

    def _remove_old_files(self, key: tuple[str, int]) -> None:
        self.manager.remove_tree_later(self._old_files.pop(key), self.partitions[key].log.config)

    def reconfigure(self, topic: Topic) -> None:
        config = self._config_of(topic.name)
        for index in range(len(topic.partitions)):
            partition = self.partitions.get((topic.name, index))
            if partition is not None:
                partition.reconfigure(config)

    # in-sync replicas

    def _now_ms(self) -> int:
        return int(self.manager.clock.monotonic() * 1000)

    async def drop_lagging(self) -> None:
        """Have followers that lag taken out of the in-sync replicas, for as long as the broker runs."""
        pause = self.lag.time_ms / 2000
        if self.lag.messages:
            pause = min(pause, _LAG_CHECK_SECONDS)
        while True:
            await asyncio.sleep(pause)
            now_ms = self._now_ms()
            for partition in list(self.partitions.values()):
                partition.drop_lagging(now_ms)

    def _ask_for_isr(self, partition: Partition, members: Members, proposal: Proposal) -> None:
        if self.alter_isr is None:
            partition.isr_refused(proposal, ErrorCode.OPERATION_NOT_ATTEMPTED, self._now_ms())
            return
        answer = self.alter_isr(partition, members)
        answer.add_done_callback(lambda done: self._isr_answered(partition, proposal, done))

    def _isr_answered(
        self, partition: Partition, proposal: Proposal, answer: asyncio.Future[AlteredPartition | Failure]
    ) -> None:
        """Whatever went wrong, the partition decides whether to ask again."""
        if answer.cancelled():
            outcome: AlteredPartition | Failure = Failure(ErrorCode.REQUEST_TIMED_OUT, "")
        elif (error := answer.exception()) is not None:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
            outcome = Failure(code, str(error))
        else:
            outcome = answer.result()
        if isinstance(outcome, Failure):
            _log.warning("in-sync replicas not changed", topic=partition.log.topic, partition=partition.log.partition,
                         error=outcome.code.name, problem=outcome.message)  # fmt: skip
            partition.isr_refused(proposal, outcome.code, self._now_ms())
        else:
            partition.isr_altered(proposal, outcome, self._now_ms())

    # disk

    def _start_flush(self, partition: Partition) -> None:
        flush = self.manager.flush(partition.log)
        if flush in self._flushing:
            return
        self._flushing.add(flush)
        flush.add_done_callback(lambda done: self._flushed(partition, done))

    def _flushed(self, partition: Partition, flush: asyncio.Future[int]) -> None:
        self._flushing.discard(flush)
        if flush.cancelled():
            return
        error = flush.exception()
        if error is None:
            partition.flushed(flush.result())
        elif not isinstance(error, OSError):  # of a failing disk the manager has told already
            raise error

    def disk_failed(self, partition: Partition, error: OSError) -> ErrorCode:
        """A write has failed: its directory goes offline with all its partitions, the others go on."""
        self.manager.fail(partition.log, error)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def logs_lost(self, lost: list[Log]) -> None:
        """A directory went offline: nobody need wait for its partitions any longer."""
        for log in lost:
            partition = self.partitions.get((log.topic, log.partition))
            if partition is not None:
                partition.resign(ErrorCode.KAFKA_STORAGE_ERROR)
                if self.fetchers is not None:
                    self.fetchers.drop(partition)

    def unusable(self) -> list[tuple[str, int]]:
        """Partitions of ours whose disk has failed, or does not let us open them."""
        return [*self._unopened, *(key for key, partition in self.partitions.items() if partition.log.is_offline)]

    def logs(self) -> list[Log]:
        return [partition.log for partition in self.partitions.values()]


def _new_partitions(delta: Delta) -> int:
    return sum(len(topic.partitions) for topic in delta.created)
