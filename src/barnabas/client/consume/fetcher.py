"""Long polls to the brokers that serve the assigned partitions, ahead of the caller.

Each broker has at most one fetch under way, for all of its partitions together, and gets the next one as soon as each
of them has room: while the caller reads what has come in, the broker works. A partition has room while less than
`max_partition_fetch_bytes` of it are buffered, so no more than twice that is held of one, and about `fetch_max_bytes`
of all. Asking for all together keeps a busy partition from waiting behind the long poll of idle ones.

Fetches outlive the call that waits for them, so a cancelled wait loses nothing. They have connections of their own, or
else every request behind a long poll would wait with it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Hashable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.consume.chunks import Chunk
from barnabas.client.consume.complaints import Complaints
from barnabas.client.consume.consumer_metrics import ConsumerMetrics
from barnabas.client.consume.fetch_answers import FetchAnswers
from barnabas.client.consume.fetch_channel import FetchChannel
from barnabas.client.consume.fetch_options import FetchOptions
from barnabas.client.consume.positions import Begin, PartitionState
from barnabas.client.consume.serving import serving_broker, why_unserved
from barnabas.client.errors import CannotReach
from barnabas.client.metadata import BrokerInfo, TopicPartition
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.consume.locator import Locator


class _Asked(NamedTuple):
    state: PartitionState
    version: int
    offset: int


@dataclass(slots=True)
class _UnderWay:
    """A fetch that one broker works on."""

    task: asyncio.Task[None]
    asked: dict[TopicPartition, _Asked]
    is_answered: bool = False

    def covers(self, state: PartitionState) -> bool:
        asked = self.asked.get(state.partition)
        return asked is not None and asked.state is state and asked.version == state.version


class Fetcher:
    """Owns the assigned partitions and the fetches for them. `arrived` is set when there is something to look at."""

    def __init__(self, client: Client, options: FetchOptions, locator: Locator) -> None:
        self.states: OrderedDict[TopicPartition, PartitionState] = OrderedDict()
        self.arrived = asyncio.Event()
        self._fetches = 0
        self._fetched_bytes = 0
        self._client = client
        self._options = options
        self._locator = locator
        self._channel = FetchChannel(client, options)
        self._under_way: dict[BrokerInfo, _UnderWay] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._searched: set[TopicPartition] = set()
        self._refreshing = False
        self._ready: OrderedDict[TopicPartition, PartitionState] = OrderedDict()
        self._complaints = Complaints(self.arrived)
        self._answers = FetchAnswers(client, options, self._complaints)
        self._timer: asyncio.TimerHandle | None = None
        self._has_room = True
        self._closed = False

    # what the consumer asks for

    def add(self, partition: TopicPartition, begin: Begin, offset: int | None = None, until: int | None = None) -> None:
        """Begin to read a partition, up to an offset if one is given; `pump` sets it going."""
        state = self.states[partition] = PartitionState(partition, begin)
        state.until = until
        if offset is not None:
            state.place(offset)

    def remove(self, partition: TopicPartition) -> None:
        state = self.states.pop(partition, None)
        if state is not None:
            state.drop()
            self._complaints.withdraw(partition)

    def stop(self, partition: TopicPartition) -> None:
        """Drop what the caller has not got, and fetch no more; the position stays known."""
        state = self.states.get(partition)
        if state is not None:
            state.paused = True
            if state.position is not None:
                state.place(state.position, state.epoch)

    def moved(self, partitions: Iterable[TopicPartition]) -> None:
        """The caller has given these another place: what was wrong with the old one does not matter any more."""
        for partition in partitions:
            self._complaints.withdraw(partition)
            if partition in self.states:
                self.states[partition].retry_at = 0.0
        self.pump()

    def resume(self, state: PartitionState) -> None:
        state.paused = False
        if state.chunks:
            self._ready[state.partition] = state
            self.arrived.set()

    def take(self) -> tuple[PartitionState, Chunk] | None:
        """The next chunk of the partition that has waited longest."""
        while self._ready:
            partition, state = self._ready.popitem(last=False)
            if self.states.get(partition) is state and state.chunks and not state.paused:
                had_room = self._has_room and state.buffered_bytes < self._options.max_partition_fetch_bytes
                chunk = state.take()
                if state.chunks:
                    self._ready[partition] = state
                if not had_room:
                    self.pump()
                return state, chunk
        return None

    def put_back(self, state: PartitionState) -> None:
        """A chunk was put back: it comes next."""
        self._ready[state.partition] = state
        self._ready.move_to_end(state.partition, last=False)

    def complain(self, subject: Hashable, error: BaseException) -> None:
        """Let whoever reads next hear of it."""
        self._complaints.add(subject, error)

    def complain_of(self, task: asyncio.Task[None]) -> None:
        """Work in the background that has ended must not have failed."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.complain(task, error)

    def raise_problem(self) -> None:
        self._complaints.raise_first()

    def metrics(self) -> ConsumerMetrics:
        buffered = sum(state.buffered_bytes for state in self.states.values())
        return ConsumerMetrics(len(self.states), self._fetches, self._fetched_bytes, buffered)

    async def wait(self, seconds: float | None) -> None:
        """Until there may be something new."""
        try:
            async with asyncio.timeout(seconds):
                await self.arrived.wait()
        except TimeoutError:
            pass
        self.arrived.clear()

    async def close(self) -> None:
        self._closed = True
        self.arrived.set()
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._channel.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self.complain_of)
        return task

    # setting fetches going

    def pump(self) -> None:
        """Ask every idle broker for its partitions, if all of them have room; look for places and leaders that lack."""
        if self._closed:
            return
        now = self._client.clock.monotonic()
        wanted: dict[BrokerInfo, list[PartitionState]] = {}
        full: set[BrokerInfo] = set()
        homeless: list[PartitionState] = []
        lost: list[PartitionState] = []
        wake_at = float("inf")
        buffered = 0
        for state in self.states.values():
            buffered += state.buffered_bytes
            if state.is_held:
                continue
            if state.retry_at > now:
                wake_at = min(wake_at, state.retry_at)
                continue
            broker = self._broker_of(state)
            if broker is None:
                homeless.append(state)
            elif state.fetch_offset is None:
                lost.append(state)
            elif state.paused or (state.until is not None and state.fetch_offset >= state.until):
                continue
            elif state.buffered_bytes >= self._options.max_partition_fetch_bytes:
                full.add(broker)
            else:
                wanted.setdefault(broker, []).append(state)
        if homeless:
            self._refresh(homeless)
        self._search(lost)
        self._has_room = buffered < self._options.fetch_max_bytes
        if self._has_room:
            for broker, states in wanted.items():
                if broker not in full and self._is_free(broker, states):
                    self._start(broker, states)
        self._wake_at(wake_at, now)

    def _wake_at(self, when: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when < float("inf"):
            self._timer = asyncio.get_running_loop().call_later(when - now, self.pump)

    def _broker_of(self, state: PartitionState) -> BrokerInfo | None:
        """Whom to ask; None if that is not known."""
        topic = self._client.metadata.cluster.topics.get(state.partition.topic)
        if topic is not None:
            if state.topic_id not in (None, topic.topic_id) and state.fetch_offset is not None:
                self._answers.made_anew(state)
            state.topic_id = topic.topic_id
        return serving_broker(self._client.metadata.cluster, state, self._client.clock.monotonic())

    def _refresh(self, homeless: list[PartitionState]) -> None:
        if not self._refreshing:
            self._refreshing = True
            self._begin(self._find_leaders(homeless))

    async def _find_leaders(self, homeless: list[PartitionState]) -> None:
        problem: KafkaError | None = None
        try:
            await self._client.metadata.refresh({state.partition.topic for state in homeless})
        except KafkaError as error:
            problem = error
        finally:
            self._refreshing = False
        for state in homeless:
            if self._broker_of(state) is None:
                self._answers.failed(state, why_unserved(self._client.metadata.cluster, state, problem))
        self.pump()

    def _search(self, lost: list[PartitionState]) -> None:
        states = [state for state in lost if state.partition not in self._searched]
        if states:
            self._searched.update(state.partition for state in states)
            self._begin(self._find_places(states))

    async def _find_places(self, states: list[PartitionState]) -> None:
        versions = {state.partition: state.version for state in states}
        try:
            found = await self._locator.find(states)
        finally:
            self._searched.difference_update(versions)
        for state in states:
            if not self._is_current(state, versions[state.partition]) or state.fetch_offset is not None:
                continue
            place = found.get(state.partition)
            if isinstance(place, KafkaError):
                self._answers.failed(state, place)
            elif place is not None:
                state.succeeded()
                state.found(place.offset, place.leader_epoch)
        self.arrived.set()
        self.pump()

    def _is_free(self, broker: BrokerInfo, states: list[PartitionState]) -> bool:
        """Whether a broker can be asked now. One that waits for other partitions or places is interrupted."""
        fetch = self._under_way.get(broker)
        if fetch is None:
            return True
        if fetch.is_answered or all(fetch.covers(state) for state in states):
            return False
        fetch.task.cancel()
        del self._under_way[broker]
        self._channel.drop(broker)
        return True

    def _start(self, broker: BrokerInfo, states: list[PartitionState]) -> None:
        asked = {s.partition: _Asked(s, s.version, s.fetch_offset) for s in states if s.fetch_offset is not None}
        task = self._begin(self._fetch(broker, asked))
        self._under_way[broker] = _UnderWay(task, asked)

    # what comes back

    async def _fetch(self, broker: BrokerInfo, asked: dict[TopicPartition, _Asked]) -> None:
        fetch = self._under_way[broker]
        try:
            states = [state for state, version, _ in asked.values() if self._is_current(state, version)]
            answers, throttle_ms = await self._channel.fetch(broker, states) if states else ([], 0)
            fetch.is_answered = True
            self._fetches += 1
            for partition, data in answers:
                if partition in asked:
                    self._answered(broker, asked[partition], data)
            if throttle_ms > 0:
                await asyncio.sleep(throttle_ms / 1000)
        except KafkaError as error:
            self._broke(asked, error)
        finally:
            if self._under_way.get(broker) is fetch:
                del self._under_way[broker]
        self.pump()

    def _broke(self, asked: dict[TopicPartition, _Asked], error: KafkaError) -> None:
        if isinstance(error, CannotReach):
            self._client.metadata.forget({partition.topic for partition in asked})
        for state, version, _ in asked.values():
            if self._is_current(state, version):
                state.read_replica = None
                self._answers.failed(state, error)

    def _answered(self, broker: BrokerInfo, asked: _Asked, data: Any) -> None:
        state, version, offset = asked
        if not self._is_current(state, version) or state.fetch_offset != offset:
            return
        chunk = self._answers.apply(broker, state, offset, data)
        if chunk is not None:
            self._fetched_bytes += chunk.size
            self.states.move_to_end(state.partition)  # whoever comes first in a request may take all of its bytes
            if state.arrived(chunk) and not state.paused:
                self._ready[state.partition] = state
            self.arrived.set()

    def _is_current(self, state: PartitionState, version: int) -> bool:
        return self.states.get(state.partition) is state and state.version == version
