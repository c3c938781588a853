"""What has been decided about writes: the control topic, a compacted one with a record per prefix of transactional ids.

Tasks leave their transactions open; what makes them count is the decision. Once it is written, every one of these
transactions is committed, by whoever comes next if need be; as long as it is not, none is. So a decision says what the
work was, which transactions hold its rows, and, written once more, that all of them are committed.

Who opens the decisions of a prefix fences who had them open: a driver that was thought dead and comes back can decide
nothing more. That is what the transaction around each record is for.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from barnabas.client.admin.configs import Configs, ResourceType
from barnabas.client.admin.topics import Topics
from barnabas.client.consumer import Consumer
from barnabas.client.list_offsets import EARLIEST, LATEST, Isolation, list_offsets
from barnabas.client.metadata import TopicPartition
from barnabas.client.produce.open_transaction import OpenTransaction
from barnabas.client.producer import Producer
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.client import Client

_POLICY = "cleanup.policy"
TOPIC_CONFIGS = {_POLICY: "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1"}
"""Small segments, or compaction never gets to the records: it leaves the youngest segment alone."""
_MOST_REMEMBERED = 1000
_FORMAT = 1
_FIRST_LOOK = 256
_FURTHER = 16
_OPEN_TIMEOUT_MS = 10_000
"""How long somebody's half-written decision can keep others from reading on."""
_READ_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Work:
    """What is written once."""

    name: str
    """The id of a query, or of a batch write."""
    batch: int | None = None
    """Of a query."""
    is_remembered: bool = field(default=False, compare=False)
    """Whether its name is kept when the next work of this prefix is decided: the user gave it."""

    def __str__(self) -> str:
        return f"write {self.name!r}" if self.batch is None else f"batch {self.batch} of query {self.name}"


@dataclass(frozen=True)
class Decision:
    work: Work
    transactions: tuple[OpenTransaction, ...] = ()
    """Those that are yet to be committed, as far as the record knows."""
    earlier: tuple[str, ...] = ()
    """Fingerprints of the names of earlier batch writes, the latest last."""

    @property
    def is_finished(self) -> bool:
        return not self.transactions

    def covers(self, work: Work) -> bool:
        """Whether this work is decided, now or earlier."""
        return work == self.work or (work.batch is None and _fingerprint(work.name) in self.earlier)

    def finished(self) -> Decision:
        return replace(self, transactions=())

    def followed_by(self, work: Work, transactions: tuple[OpenTransaction, ...]) -> Decision:
        """The next decision of the same prefix; it remembers what this one does."""
        earlier = self.earlier
        if self.work.is_remembered:
            earlier = (*earlier, _fingerprint(self.work.name))[-_MOST_REMEMBERED:]
        return Decision(work, transactions, earlier)

    def to_json(self) -> bytes:
        document = {
            "format": _FORMAT,
            "name": self.work.name,
            "batch": self.work.batch,
            "remembered": self.work.is_remembered,
            "transactions": [[t.transactional_id, t.producer_id, t.producer_epoch] for t in self.transactions],
            "earlier": self.earlier,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Decision:
        document = json.loads(text)
        if document["format"] != _FORMAT:
            raise ValueError(f"a decision of format {document['format']}, which a later version wrote")
        work = Work(document["name"], document["batch"], document["remembered"])
        transactions = tuple(OpenTransaction(*each) for each in document["transactions"])
        return cls(work, transactions, tuple(document["earlier"]))


def _fingerprint(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


class Decisions:
    """The decisions of one prefix, ours alone while this is open: `async with Decisions(...) as decisions`."""

    def __init__(self, client: Client, topic: str, prefix: str) -> None:
        self.last: Decision | None = None
        self._client = client
        self._partition = TopicPartition(topic, 0)
        self._key = prefix.encode()
        self._producer = Producer(
            client, transactional_id=f"{prefix}-decisions", transaction_timeout_ms=_OPEN_TIMEOUT_MS, linger_ms=0
        )
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await ensure_topic(self._client, self._partition.topic)
        await self._open.enter_async_context(self._producer)  # from here on nobody else can write
        try:
            self.last = await find_decision(self._client, self._partition, self._key)
        except BaseException:
            await self._open.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def write(self, decision: Decision) -> None:
        """Make it the last one; when this returns, it is."""
        async with self._producer.transaction():
            await self._producer.send(self._partition.topic, decision.to_json(), key=self._key, partition=0)
        self.last = decision


async def ensure_topic(client: Client, topic: str) -> None:
    """Create the topic if it is not there yet; another driver may be doing the same."""
    if await _exists(client, topic):
        policy = (await Configs(client).describe(ResourceType.TOPIC, topic, [_POLICY]))[_POLICY].value
        if policy != TOPIC_CONFIGS[_POLICY]:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {topic!r} has {_POLICY}={policy}, and would forget decisions; set it to compact, or name "
                "another topic by the option controlTopic",
            )
        return
    try:
        await Topics(client).create(topic, partitions=1, configs=TOPIC_CONFIGS)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    await client.retrying(lambda: client.metadata.topic(topic))


async def _exists(client: Client, topic: str) -> bool:
    try:
        await client.metadata.topic(topic)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return False
    return True


async def look_up(client: Client, topic: str, prefix: str) -> Decision | None:
    """The last decision of a prefix, for those who decide nothing: whoever has it open is left alone."""
    if not await _exists(client, topic):
        return None
    return await find_decision(client, TopicPartition(topic, 0), prefix.encode())


async def find_decision(client: Client, partition: TopicPartition, key: bytes) -> Decision | None:
    """The last one under a key, looked for from the end of the topic backwards."""
    ends = {name: await _offset(client, partition, name) for name in (EARLIEST, LATEST)}
    end, size = ends[LATEST], _FIRST_LOOK
    while end > ends[EARLIEST]:
        start = max(ends[EARLIEST], end - size)
        found = await _last_value(client, partition, start, end, key)
        if found is not None:
            return Decision.from_json(found)
        end, size = start, size * _FURTHER
    return None


async def _offset(client: Client, partition: TopicPartition, place: int) -> int:
    """The end is that of all records, not of the committed ones: whatever was committed before is to be seen."""
    return (await list_offsets(client, {partition: place}, Isolation.READ_UNCOMMITTED))[partition].offset


async def _last_value(client: Client, partition: TopicPartition, start: int, end: int, key: bytes) -> bytes | None:
    last: bytes | None = None
    async with Consumer(client, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign({partition: start})
        try:
            async with asyncio.timeout(_READ_SECONDS):
                while await consumer.position(partition) < end:
                    for record in await consumer.poll(timeout_ms=100):
                        if record.key == key and record.offset < end:
                            last = record.value
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{partition} could not be read up to offset {end} within {_READ_SECONDS} s; "
                "does somebody keep a transaction open in it?",
            ) from None
    return last
