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
import logging
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.chunks import Chunk, scan
from barnabas.client.consumer_errors import CorruptRecords, LogTruncated, NoOffset
from barnabas.client.consumer_metrics import ConsumerMetrics
from barnabas.client.errors import CannotReach, refused
from barnabas.client.fetch_options import FetchOptions
from barnabas.client.fetch_sessions import SESSION_ERRORS, FetchSession
from barnabas.client.metadata import BrokerInfo, TopicPartition
from barnabas.client.positions import Begin, PartitionState
from barnabas.client.serving import serving_broker, why_unserved
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.batch import CorruptBatch

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.locator import Locator

log = logging.getLogger(__name__)

_GONE_SECONDS = 3.0
"""How long the cluster must say that a topic is not there which was, before its reader is told."""


class _Asked(NamedTuple):
    state: PartitionState
    version: int
    offset: int


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
        self._connections = client.separate_connections()
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._searches: set[asyncio.Task[None]] = set()
        self._searched: set[TopicPartition] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._ready: deque[PartitionState] = deque()
        self._problems: deque[KafkaError] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    # what the consumer asks for

    def add(self, partition: TopicPartition, begin: Begin, offset: int | None = None) -> None:
        """Begin to read a partition; `pump` sets it going."""
        state = self.states[partition] = PartitionState(partition, begin)
        if offset is not None:
            state.place(offset)

    def remove(self, partition: TopicPartition) -> None:
        state = self.states.pop(partition, None)
        if state is not None:
            state.drop()

    def stop(self, partition: TopicPartition) -> None:
        """Drop what the caller has not got, and fetch no more; the position stays known."""
        state = self.states.get(partition)
        if state is not None:
            state.paused = True
            if state.position is not None:
                state.place(state.position, state.epoch)

    def interrupt(self, partitions: Iterable[TopicPartition]) -> None:
        """Places have changed: do not sit out long polls that were asked for before."""
        for partition in partitions:
            state = self.states.get(partition)
            broker = None if state is None else self._broker_of(state)
            if broker is not None and broker.node_id in self._under_way:
                self._under_way.pop(broker.node_id).cancel()
                self._connections.drop(broker.address)
        self.pump()

    def resume(self, state: PartitionState) -> None:
        state.paused = False
        if state.chunks:
            self._is_ready(state)

    def take(self) -> tuple[PartitionState, Chunk] | None:
        """The next chunk of the partition that has waited longest."""
        while self._ready:
            state = self._ready.popleft()
            if self.states.get(state.partition) is state and state.chunks and not state.paused:
                chunk = state.take()
                if state.chunks:
                    self._ready.append(state)
                self.pump()
                return state, chunk
        return None

    def put_back(self, state: PartitionState) -> None:
        """A chunk was put back: it comes next."""
        self._ready.appendleft(state)

    def complain(self, error: KafkaError) -> None:
        """Let whoever reads next hear of it."""
        self._problems.append(error)
        self.arrived.set()

    def raise_problem(self) -> None:
        if self._problems:
            raise self._problems.popleft()

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
        tasks = [*self._under_way.values(), *self._searches, *([self._refreshing] if self._refreshing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connections.close()

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
            if state.retry_at > now:
                wake_at = min(wake_at, state.retry_at)
                continue
            broker = self._broker_of(state)
            if broker is None:
                homeless.append(state)
            elif state.fetch_offset is None:
                lost.append(state)
            elif state.paused:
                continue
            elif state.buffered_bytes >= self._options.max_partition_fetch_bytes:
                full.add(broker)
            else:
                wanted.setdefault(broker, []).append(state)
        if homeless:
            self._refresh(homeless)
        self._search(lost)
        if buffered < self._options.fetch_max_bytes:
            for broker, states in wanted.items():
                if broker not in full and broker.node_id not in self._under_way:
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
                self._made_anew(state)
            state.topic_id = topic.topic_id
        return serving_broker(self._client.metadata.cluster, state, self._client.clock.monotonic())

    def _made_anew(self, state: PartitionState) -> None:
        """Another topic of the same name: offsets of the old one mean nothing in it."""
        if self._options.auto_offset_reset == "none":
            self._raise(state, NoOffset(state.partition, state.fetch_offset))
            return
        log.warning("topic %s was deleted and made anew; reading %s from its beginning", *_names(state))
        state.displace(Begin.EARLIEST)

    def _refresh(self, homeless: list[PartitionState]) -> None:
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._find_leaders(homeless))

    async def _find_leaders(self, homeless: list[PartitionState]) -> None:
        problem: KafkaError | None = None
        try:
            await self._client.metadata.refresh({state.partition.topic for state in homeless})
        except KafkaError as error:
            problem = error
        self._refreshing = None
        for state in homeless:
            if self._broker_of(state) is None:
                self._failed(state, why_unserved(self._client.metadata.cluster, state, problem))
        self.pump()

    def _search(self, lost: list[PartitionState]) -> None:
        states = [state for state in lost if state.partition not in self._searched]
        if states:
            self._searched.update(state.partition for state in states)
            task = asyncio.create_task(self._find_places(states))
            self._searches.add(task)
            task.add_done_callback(self._searches.discard)

    async def _find_places(self, states: list[PartitionState]) -> None:
        versions = {state.partition: state.version for state in states}
        found = await self._locator.find(states)
        self._searched.difference_update(versions)
        for state in states:
            if not self._is_current(state, versions[state.partition]) or state.fetch_offset is not None:
                continue
            place = found.get(state.partition)
            if isinstance(place, KafkaError):
                self._failed(state, place)
            elif place is not None:
                state.succeeded()
                state.found(place.offset, place.leader_epoch)
        self.arrived.set()
        self.pump()

    def _start(self, broker: BrokerInfo, states: list[PartitionState]) -> None:
        self._under_way[broker.node_id] = asyncio.create_task(self._fetch(broker, states))

    # what comes back

    async def _fetch(self, broker: BrokerInfo, states: list[PartitionState]) -> None:
        asked = {s.partition: _Asked(s, s.version, s.fetch_offset) for s in states if s.fetch_offset is not None}
        try:
            response = await self._ask(broker, states)
        except KafkaError as error:
            self._broke(asked, error)
        else:
            self._fetches += 1
            for partition, data in self._sessions[broker.node_id].answered(response):
                if partition in asked:
                    self._answered(broker, asked[partition], data)
            if response.throttle_time_ms > 0:
                await asyncio.sleep(response.throttle_time_ms / 1000)
        if self._under_way.get(broker.node_id) is asyncio.current_task():
            del self._under_way[broker.node_id]
        self.pump()

    async def _ask(self, broker: BrokerInfo, states: list[PartitionState]) -> Any:
        session = self._sessions.get(broker.node_id)
        if session is None:
            session = self._sessions[broker.node_id] = FetchSession(self._client.metadata, self._options)
        request = session.plan(states)
        try:
            response = await self._connections.request(
                broker.address,
                request,
                broker=f"broker {broker.node_id}",
                highest=session.highest_version,
                extra_timeout_ms=self._options.fetch_max_wait_ms,
            )
        except BaseException:
            session.lost()
            raise
        if response.error_code in SESSION_ERRORS and request.session_epoch:
            session.lost(unknown=True)
            return await self._ask(broker, [state for state in states if state.fetch_offset is not None])
        if response.error_code:
            session.lost(unknown=True)
            raise refused(response.error_code, f"fetch from broker {broker.node_id}")
        return response

    def _broke(self, asked: dict[TopicPartition, _Asked], error: KafkaError) -> None:
        if isinstance(error, CannotReach):
            self._client.metadata.forget({partition.topic for partition in asked})
        for state, version, _ in asked.values():
            if self._is_current(state, version):
                state.read_replica = None
                self._failed(state, error)

    def _answered(self, broker: BrokerInfo, asked: _Asked, data: Any) -> None:
        state, version, offset = asked
        if not self._is_current(state, version) or state.fetch_offset != offset:
            return
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(broker, state, offset)
        elif data.error_code != ErrorCode.NONE:
            state.read_replica = None
            self._client.metadata.forget([state.partition.topic])
            self._failed(state, refused(data.error_code, f"cannot read {state.partition}"))
        elif data.diverging_epoch.end_offset >= 0:
            self._diverged(state, data.diverging_epoch)
        else:
            self._took(state, offset, data)

    def _took(self, state: PartitionState, offset: int, data: Any) -> None:
        state.succeeded()
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        if data.preferred_read_replica >= 0:
            state.read_replica = data.preferred_read_replica
            state.read_replica_until = self._client.clock.monotonic() + self._options.metadata_max_age_ms / 1000
        if not data.records:
            return
        try:
            chunk = scan(data.records, offset, data.aborted_transactions or (), check_crcs=self._options.check_crcs)
        except CorruptBatch as error:
            self._raise(state, CorruptRecords(state.partition, offset, error))
            return
        self._fetched_bytes += chunk.size
        self.states.move_to_end(state.partition)  # whoever comes first in a request may take all of its bytes
        if state.arrived(chunk) and not state.paused:
            self._is_ready(state)
        self.arrived.set()

    def _is_ready(self, state: PartitionState) -> None:
        if state not in self._ready:
            self._ready.append(state)
        self.arrived.set()

    def _out_of_range(self, broker: BrokerInfo, state: PartitionState, offset: int) -> None:
        if state.read_replica == broker.node_id:
            state.read_replica = None  # it may be behind or ahead: only the leader's word counts
        elif self._options.auto_offset_reset == "none":
            self._raise(state, NoOffset(state.partition, offset))
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
            self._raise(state, error)
        else:
            log.warning("%s", error)
            state.place(diverging.end_offset, diverging.epoch)

    def _is_current(self, state: PartitionState, version: int) -> bool:
        return self.states.get(state.partition) is state and state.version == version

    def _failed(self, state: PartitionState, error: KafkaError) -> None:
        """Ask again after a pause; tell the caller of what cannot pass, or has not passed for too long."""
        now = self._client.clock.monotonic()
        if state.failing_since is None:
            state.failing_since = now
        patience = self._client.retry_timeout_ms / 1000
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and state.topic_id is not None:
            patience = min(patience, _GONE_SECONDS)
        if not error.retriable or now - state.failing_since > patience:
            state.failing_since = None
            self.complain(error)
        state.retry_at = now + self._client.backoff_seconds(state.failures)
        state.failures += 1

    def _raise(self, state: PartitionState, error: KafkaError) -> None:
        """Tell the caller, who decides; asked again after a pause if that changes nothing."""
        state.retry_at = self._client.clock.monotonic() + self._client.backoff_seconds(state.failures)
        state.failures += 1
        self.complain(error)


def _names(state: PartitionState) -> tuple[str, TopicPartition]:
    return state.partition.topic, state.partition
