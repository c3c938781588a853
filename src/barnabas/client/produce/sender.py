"""Takes batches from their queues to the leaders, and answers back to the batches.

There is no task per record or per partition. One plain function, the round, looks at all queues that hold something:
it gives up what is too old, and sends what is ready, the batches of several partitions of one leader in one request. A
round follows whatever may have changed the picture: a new or a full batch, an answer, the metadata of a topic, a time
that has come. An answer comes by a call; only a look for a topic or for the producer's identity is a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import DeliveryTimeout, records
from barnabas.client.metadata import BrokerInfo, TopicPartition
from barnabas.client.produce.batch_fates import Fates
from barnabas.client.produce.buffer_memory import BufferMemory
from barnabas.client.produce.delivery import Appended, Failures, Pending
from barnabas.client.produce.identity import Identity, ProducerIdentity
from barnabas.client.produce.partition_queue import PartitionQueue
from barnabas.client.produce.produce_requests import Sent, answers, produce_request
from barnabas.client.produce.producer_batch import ProducerBatch
from barnabas.client.produce.producer_lookups import Lookups
from barnabas.client.produce.producer_topics import ParkedRecord, ProducerTopic
from barnabas.core import logs
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.records.compression import Compression
from barnabas.wire.messages.k00_produce import ProduceRequest

_log = logs.get_logger(__name__)
ACKS_NONE = 0


@dataclass(frozen=True, slots=True)
class SendingRules:
    acks: int
    compression: Compression
    linger_seconds: float
    max_in_flight: int
    max_request_size: int
    max_block_ms: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    metadata_max_age_ms: int


class Lane:
    """The way to one broker. Until a request got through, one goes alone: the next must not overtake it."""

    __slots__ = ("in_flight", "is_proven", "muted_until")

    def __init__(self) -> None:
        self.in_flight = 0
        self.is_proven = False
        self.muted_until = 0.0
        """A broker whose quota is used up does not want to hear before (KIP-219)."""


class Sender:
    """Owned by the loop that runs it. Nothing is left running after `close`."""

    def __init__(
        self,
        client: Client,
        rules: SendingRules,
        identity: Identity,
        memory: BufferMemory,
        failures: Failures,
    ) -> None:
        self.rules = rules
        self.identity = identity
        self.on_learned: Callable[[ProducerTopic], None] = lambda _: None
        """Called when a topic was found, or found again."""
        self.topics: dict[str, ProducerTopic] = {}
        self.active: dict[PartitionQueue, None] = {}
        """The queues that hold a batch, waiting or in flight, the longest unserved first."""
        self.fates = Fates(client, rules.compression, identity, memory, failures)
        self.requests_sent = 0
        self._client = client
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[int, Lane] = {}
        self._under_way: set[asyncio.Future[Any]] = set()
        self._lookups = Lookups(client, identity, self._start, self.wake)
        self._is_round_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._next_round_at = inf

    def wake(self) -> None:
        """Have a round as soon as the loop gets to it."""
        if not self._is_round_due:
            self._is_round_due = True
            self._loop.call_soon(self._round)

    def put(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Take in a new batch, whose memory is reserved."""
        queue.add(batch)
        self.active[queue] = None
        self.wake()

    def park(self, topic: ProducerTopic, record: ParkedRecord) -> None:
        topic.parked.append(record)
        self.wake()

    def last_parked(self) -> list[Pending]:
        """The last record of each topic that is not known yet; those before it are settled no later."""
        return [topic.parked[-1].pending for topic in self.topics.values() if topic.parked]

    def batches(self) -> list[ProducerBatch]:
        """All that are not settled."""
        return [batch for queue in self.active for batch in (*queue.in_flight, *queue.waiting)]

    def has_leader(self, partition: TopicPartition) -> bool:
        return self._leader_id(partition) is not None

    def close_batches(self) -> None:
        """Let everything leave without lingering."""
        for queue in self.active:
            queue.close()
        self.wake()

    def abandon_waiting(self, error: KafkaError) -> None:
        """Give up everything that is not in flight."""
        for topic in self.topics.values():
            while topic.parked:
                self.fates.give_up_parked(topic.parked.popleft(), error)
        for queue in self.active:
            self._abandon(queue, error)

    def _abandon(self, queue: PartitionQueue, error: KafkaError) -> None:
        queue.close()
        while queue.waiting:
            self.fates.give_up(queue.waiting.popleft(), error)

    async def discard(self, error: KafkaError) -> None:
        """Give up everything, what is in flight when it is answered; whoever does this tells of it."""
        self.abandon_waiting(error)
        while any(queue.in_flight for queue in self.active):
            if self._under_way:
                await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)  # the answer has come, and is about to be handed out
            self.abandon_waiting(error)
        self.fates.failures.clear()

    async def close(self, error: KafkaError) -> None:
        """Stop; what is still unsettled fails with `error`."""
        self._is_round_due = True  # no further round is scheduled
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.abandon_waiting(error)
        for queue in self.active:
            for batch in queue.in_flight:
                self.fates.give_up(batch, error)
            queue.in_flight.clear()
        self.active.clear()

    # the round

    def _round(self) -> None:
        self._is_round_due = False
        now = self._client.clock.monotonic()
        self._next_round_at = inf
        for topic in self.topics.values():
            self._mind(topic, now)
        identity = self.identity.current
        if identity is None and self.active:
            self._obtain_identity(now)
        by_leader: dict[int, list[PartitionQueue]] = {}
        for queue in list(self.active):
            self._expire(queue, now)
            if not queue.waiting:
                if not queue.in_flight:
                    del self.active[queue]
                continue
            if identity is not None and self._is_ready(queue, now) and self.identity.may_receive(queue.partition):
                leader_id = self._leader_of(queue, now)
                if leader_id is not None:
                    by_leader.setdefault(leader_id, []).append(queue)
        if identity is not None:
            for leader_id, queues in by_leader.items():
                self._fill(leader_id, queues, identity, now)
        self._set_timer(now)

    def _is_ready(self, queue: PartitionQueue, now: float) -> bool:
        linger = 0.0 if self._memory.waiting else self.rules.linger_seconds
        ready_at = queue.ready_at(linger, self.rules.max_in_flight)
        if ready_at is None:
            return False
        if ready_at > now:
            self._look_again(ready_at)
        return ready_at <= now

    def _leader_of(self, queue: PartitionQueue, now: float) -> int | None:
        """Whom to send to; None while that is not known, or the former leader still owes answers."""
        leader_id = self._leader_id(queue.partition)
        if leader_id is None:
            self._look_again(self._lookups.look_for(self.topics[queue.partition.topic], now))
        elif queue.in_flight and queue.leader_id != leader_id:
            return None
        return leader_id

    def _leader_id(self, partition: TopicPartition) -> int | None:
        cluster = self._client.metadata.cluster
        info = cluster.topics.get(partition.topic)
        if info is None or partition.partition >= len(info.partitions):
            return None
        leader_id = info.partitions[partition.partition].leader
        return leader_id if leader_id in cluster.brokers else None

    def _fill(self, leader_id: int, queues: list[PartitionQueue], identity: ProducerIdentity, now: float) -> None:
        """Send requests to one leader until all that is ready has left, or as many are in flight as may be."""
        lane = self._lanes.get(leader_id)
        if lane is None:
            lane = self._lanes[leader_id] = Lane()
        if lane.muted_until > now:
            self._look_again(lane.muted_until)
            return
        rules = self.rules
        while queues and lane.in_flight < (rules.max_in_flight if lane.is_proven else 1):
            batches: list[Sent] = []
            size = 0
            left = []
            for queue in queues:
                if batches and size + queue.waiting[0].size_bytes > rules.max_request_size:
                    left.append(queue)
                    continue
                if queue.has_gap and not queue.close_gap():
                    self.identity.current = None
                    self.wake()
                    continue
                batch = queue.take(identity, rules.compression, self.identity.transactional_id is not None)
                queue.leader_id = leader_id
                size += batch.size_bytes
                batches.append(Sent(queue, batch))
                del self.active[queue]
                self.active[queue] = None
                if self._is_ready(queue, now):
                    left.append(queue)
            queues = left
            if batches:
                lane.in_flight += 1
                self.requests_sent += 1
                self._exchange(lane, self._client.metadata.cluster.brokers[leader_id], batches)

    # what has a time

    def _look_again(self, at: float) -> None:
        self._next_round_at = min(self._next_round_at, at)

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._next_round_at < inf:
            self._timer = self._loop.call_later(max(self._next_round_at - now, 0.0), self.wake)

    def _expire(self, queue: PartitionQueue, now: float) -> None:
        """Give up what was not acknowledged in time."""
        limit = self.rules.delivery_timeout_ms / 1000
        if queue.oldest + limit > now:
            self._look_again(queue.oldest + limit)
            return
        problem = self.topics[queue.partition.topic].problem or queue.problem  # who looks for a topic tried last
        for batch in queue.expire(now, limit):
            what = f"{records(batch.record_count, f' for {queue.partition}')} not acknowledged"
            self.fates.give_up(
                batch, DeliveryTimeout(what, "delivery_timeout_ms", self.rules.delivery_timeout_ms, problem)
            )

    # what has to be looked for

    def _mind(self, topic: ProducerTopic, now: float) -> None:
        """Look for a topic that is not known or was looked for long ago, and act on what was found."""
        problem = topic.problem
        if problem is not None and not problem.retriable:
            topic.problem = None
            self._refuse(topic, problem)
        if topic.parked and topic.queues:
            self.on_learned(topic)
        while topic.parked and topic.parked[0].deadline <= now:
            what = f"nothing was learned of topic {topic.name!r}"
            error = DeliveryTimeout(what, "max_block_ms", self.rules.max_block_ms, topic.problem)
            self.fates.give_up_parked(topic.parked.popleft(), error)
        if topic.parked:
            self._look_again(topic.parked[0].deadline)
        if topic.parked or (topic.queues and now > topic.learned_at + self.rules.metadata_max_age_ms / 1000):
            self._look_again(self._lookups.look_for(topic, now))

    def _obtain_identity(self, now: float) -> None:
        problem = self._lookups.identity_problem
        if problem is not None:
            self._lookups.identity_problem = None
            for queue in self.active:
                queue.problem = problem
            if not problem.retriable:
                self.abandon_waiting(problem)
        self._look_again(self._lookups.obtain_identity(now))

    def _refuse(self, topic: ProducerTopic, error: KafkaError) -> None:
        """The cluster will not have records of this topic."""
        while topic.parked:
            self.fates.give_up_parked(topic.parked.popleft(), error)
        for queue in topic.queues:
            self._abandon(queue, error)

    # requests and answers

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._keep(self._loop.create_task(work))

    def _keep(self, future: asyncio.Future[Any]) -> None:
        """Nothing may be left of it when the sender is closed."""
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)

    def _exchange(self, lane: Lane, leader: BrokerInfo, sent: list[Sent]) -> None:
        """Send one request; every batch gets its answer when that has come."""
        client, rules, identity = self._client, self.rules, self.identity
        try:
            request = produce_request(
                sent, client.metadata.cluster.topics, rules.acks, rules.request_timeout_ms, identity.transactional_id
            )
        except Exception as error:
            self._start(self._send_unanswered(lane, leader, sent, error))
            return
        if rules.acks == ACKS_NONE:
            self._start(self._send_unanswered(lane, leader, sent, request))
        else:
            told = partial(self._answered, lane, request, sent)
            self._keep(client.call(leader, request, told, highest=identity.highest_produce_version))

    async def _send_unanswered(
        self, lane: Lane, leader: BrokerInfo, sent: list[Sent], request: ProduceRequest | Exception
    ) -> None:
        """Send what gets no answer, or tell why it could not even be written."""
        try:
            if isinstance(request, Exception):
                raise request
            await self._client.send(leader, request)
        except Exception as error:
            self._answered(lane, None, sent, error)
        else:
            self._answered(lane, None, sent, None)

    def _answered(self, lane: Lane, request: ProduceRequest | None, sent: list[Sent], answer: Any) -> None:
        """Hand every batch what a request has come to: a response, nothing where none was asked for, or an error."""
        lane.in_flight -= 1
        try:
            lane.is_proven = not isinstance(answer, BaseException)
            if isinstance(answer, KafkaError):
                self._fail_attempt(sent, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._succeeded(lane, request, sent, answer)
        except Exception as error:  # a bug, here or in the broker: nobody may wait for ever
            _log.exception("a produce request failed in an unforeseen way")
            self._fail_attempt(sent, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"cannot produce: {error!r}"))
        if self._memory.waiting or any(queue.waiting for queue in self.active):
            self.wake()

    def _succeeded(self, lane: Lane, request: ProduceRequest | None, sent: list[Sent], response: Any) -> None:
        if request is None:
            for queue, batch in sent:
                self.fates.appended(queue, batch, Appended())
            return
        if response.throttle_time_ms:
            lane.muted_until = self._client.clock.monotonic() + response.throttle_time_ms / 1000
        for (queue, batch), outcome in answers(request, response, sent):
            if isinstance(outcome, Appended):
                self.fates.appended(queue, batch, outcome)
            else:
                self.fates.refused(queue, batch, outcome)

    def _fail_attempt(self, sent: list[Sent], error: KafkaError) -> None:
        for queue, batch in sent:
            if batch in queue.in_flight:
                self.fates.refused(queue, batch, error)
