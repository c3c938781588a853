"""Producers that share a transactional id, and a network that delays, repeats and reorders what they send a broker.

Every request lies in one bag until the seed draws it. Then it goes out on one of several connections, without waiting
for those on the others, and perhaps once more, much later. An answer may be lost on its way back; the producer then
asks again. A new producer may come at any time, without a word to the one before, which goes on as if nothing were.

Producers of the first protocol keep their epoch from one transaction to the next, so nothing tells a late request of
theirs from a timely one. They get what their protocol needs: one copy at a time, until they are fenced, and they add
every partition before they write to it, or the record would count for a transaction whose markers are still missing.

The ledger hears every answer, also those that are lost: from them follows, to the record, what a consumer must see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from barnabas.core.errors import ErrorCode
from barnabas.records.builder import BatchBuilder
from barnabas.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.k26_end_txn import EndTxnRequest
from barnabas.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.broker.wire_client import Connection, now_ms

TIMEOUT_MS = 60_000
NONE = ErrorCode.NONE
COME_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


class Producer(NamedTuple):
    producer_id: int
    epoch: int


NOBODY = Producer(-1, -1)


class Transaction(NamedTuple):
    """In the order in which they happen. The number counts within an epoch, which only the first protocol needs."""

    producer: Producer
    number: int = 0


@dataclass(eq=False)
class Message:
    """A request, what the ledger learns from its answer, and what the producer does on it."""

    request: Any
    version: int
    sender: Producer
    keeps_epoch: bool
    learn: Callable[[Any], None]
    hear: Callable[[Any], None]


@dataclass
class Ledger:
    """What the broker has promised."""

    records: dict[Transaction, dict[tuple[int, int], bytes]] = field(default_factory=dict)
    """By partition and sequence."""
    offsets: dict[Transaction, int] = field(default_factory=dict)
    ends: dict[Transaction, bool] = field(default_factory=dict)
    answers: Counter[tuple[str, ErrorCode]] = field(default_factory=Counter)

    def ended(self, transaction: Transaction, commit: bool) -> None:
        assert self.ends.setdefault(transaction, commit) is commit, "a transaction was committed, and aborted"

    def committed(self) -> list[Transaction]:
        return sorted(transaction for transaction, commit in self.ends.items() if commit)

    def visible(self, partition: int) -> list[bytes]:
        """The values in a partition that a consumer with `read_committed` must see, in order."""
        return [
            value
            for transaction in self.committed()
            for (place, _), value in sorted(self.records.get(transaction, {}).items())
            if place == partition
        ]

    def committed_offset(self) -> int:
        return next((self.offsets[each] for each in reversed(self.committed()) if each in self.offsets), -1)


class Network:
    def __init__(self, seed: int, address: str, topic: str, topic_id: bytes, partitions: int, name: str) -> None:
        self.random = Random(seed)
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = partitions
        self.name = name
        self.protocols = ((2,), (2,), (2,), (1, 2), (1,))[seed % 5]
        self.ledger = Ledger()
        self.newest = NOBODY
        self._connections = [Connection(address) for _ in range(3)]
        self._unanswered: dict[Connection, list[tuple[Message, int]]] = {each: [] for each in self._connections}
        self._bag: list[Message] = []
        self._late: list[Message] = []  # copies of what was delivered, to come again
        self._producers = [SimulatedProducer(self) for _ in range(2)]
        self.successor = self._producers[0]  # the one that is meant to be alive; the other may not know

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
        while self._move(self._bag):
            pass

    def repeat(self) -> None:
        """All that was kept comes once more."""
        while self._move(self._late):
            pass

    def send(self, message: Message) -> None:
        self._bag.append(message)

    def is_under_way(self, message: Message) -> bool:
        return message in self._bag or any(message is sent for each in self._unanswered.values() for sent, _ in each)

    def _step(self) -> None:
        random = self.random
        draw = random.random()
        if draw < 0.01:
            self.successor = random.choice(self._producers)
            self.successor.restart()
        elif draw < 0.06:
            self._deliver(self._late, lambda message: not message.keeps_epoch or message.sender < self.newest)
        elif draw < 0.3 or not self._move(self._bag):
            (self.successor if random.random() < 0.8 else random.choice(self._producers)).act()

    def _move(self, bag: list[Message]) -> bool:
        """Send something or receive something; False if neither can be."""
        if self.random.random() < 0.5:
            return self._receive() or self._deliver(bag)
        return self._deliver(bag) or self._receive()

    def _deliver(self, bag: list[Message], may_pass: Callable[[Message], bool] = lambda message: True) -> bool:
        ready = [index for index, message in enumerate(bag) if may_pass(message)]
        if not ready:
            return False
        message = bag.pop(self.random.choice(ready))
        if bag is self._bag and self.random.random() < (0.03 if message.sender == NOBODY else 0.2):
            self._late.append(message)  # seldom what fences everybody, or nothing else would happen
        connection = self.random.choice(self._connections)
        self._unanswered[connection].append((message, connection.send(message.request, message.version)))
        return True

    def _receive(self) -> bool:
        waiting = [connection for connection, messages in self._unanswered.items() if messages]
        if not waiting:
            return False
        connection = self.random.choice(waiting)
        message, correlation_id = self._unanswered[connection].pop(0)
        answer = connection.receive(message.request, message.version, correlation_id)
        self.ledger.answers[type(message.request).__name__, code_of(answer)] += 1
        message.learn(answer)
        if self.random.random() < 0.9:
            message.hear(answer)
        return True


class SimulatedProducer:
    """Begins, writes, ends, and asks again. It may think it is alive when it is not."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.restart()

    def restart(self) -> None:
        self._keeps_epoch = self._network.random.choice(self._network.protocols) == 1
        self._become(NOBODY)

    def _become(self, producer: Producer) -> None:
        self._me = producer
        self._sequences: dict[int, int] = {}
        self._begin(Transaction(producer))

    def _begin(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._added: set[int | str] = set()
        self._wants_commit: bool | None = None
        self._waits_for: Message | None = None

    def act(self) -> None:
        random = self._network.random
        if self._waits_for is not None:
            may_repeat = not self._keeps_epoch or not self._network.is_under_way(self._waits_for)
            if may_repeat and random.random() < 0.2:
                self._network.send(self._waits_for)
        elif self._me == NOBODY or random.random() < 0.02:
            if self is self._network.successor:
                self._initialise()
        elif self._wants_commit is not None or random.random() < 0.2:
            if self._wants_commit is None:
                self._wants_commit = random.random() < (0.8 if self._sequences else 0.1)
            self._end(self._wants_commit)
        elif random.random() < 0.15:
            self._commit_offset()
        else:
            self._produce(random.randrange(self._network.partitions))

    def _ask(
        self,
        request: Any,
        version: int,
        learn: Callable[[Any], None],
        succeeded: Callable[[Any], None],
        failed: Callable[[], None],
    ) -> None:
        def hear(answer: Any) -> None:
            if self._waits_for is message:
                self._waits_for = None
                code = code_of(answer)
                if code is NONE:
                    succeeded(answer)
                elif code not in COME_AGAIN:
                    failed()

        message = Message(request, version, self._me, self._keeps_epoch, learn, hear)
        self._waits_for = message
        self._network.send(message)

    def _initialise(self) -> None:
        """Half of those that know who they were say so (KIP-360)."""
        expected = self._me if self._network.random.random() < 0.5 else NOBODY

        def learn(answer: Any) -> None:
            self._network.newest = max(self._network.newest, Producer(answer.producer_id, answer.producer_epoch))

        self._ask(
            InitProducerIdRequest(self._network.name, TIMEOUT_MS, *expected),
            5,
            learn,
            lambda answer: self._become(Producer(answer.producer_id, answer.producer_epoch)),
            self.restart,
        )

    def _end(self, commit: bool) -> None:
        transaction = self._transaction

        def learn(answer: Any) -> None:
            if answer.error_code == NONE:
                self._network.ledger.ended(transaction, commit)

        def succeeded(answer: Any) -> None:
            if self._keeps_epoch:
                self._begin(Transaction(self._me, transaction.number + 1))
            else:
                self._become(Producer(answer.producer_id, answer.producer_epoch))

        request = EndTxnRequest(self._network.name, *self._me, commit)
        self._ask(request, 4 if self._keeps_epoch else 5, learn, succeeded, self.restart)

    def _produce(self, partition: int) -> None:
        network, transaction = self._network, self._transaction
        if self._keeps_epoch and partition not in self._added:
            self._add(partition)
            return
        sequence = self._sequences.get(partition, 0)
        values = {
            (partition, sequence + count): f"{network.name} {transaction} {partition} {sequence + count}".encode()
            for count in range(network.random.randint(1, 2))
        }

        def learn(answer: Any) -> None:
            if code_of(answer) is NONE:
                network.ledger.records.setdefault(transaction, {}).update(values)

        def succeeded(answer: Any) -> None:
            self._sequences[partition] = sequence + len(values)

        version = 11 if self._keeps_epoch else network.random.choice((12, 13))
        request = self._produce_request(partition, sequence, list(values.values()))
        self._ask(request, version, learn, succeeded, self._give_up)

    def _produce_request(self, partition: int, sequence: int, values: list[bytes]) -> ProduceRequest:
        builder = BatchBuilder(
            producer_id=self._me.producer_id,
            producer_epoch=self._me.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        for value in values:
            builder.append(None, value, (), now_ms())
        data = [PartitionProduceData(partition, builder.build())]
        topic = TopicProduceData(self._network.topic, self._network.topic_id, data)
        return ProduceRequest(self._network.name, -1, 10_000, [topic])

    def _commit_offset(self) -> None:
        """One offset for each transaction: nothing but the transaction tells a late commit from a timely one."""
        network, transaction = self._network, self._transaction
        if self._keeps_epoch and network.name not in self._added:
            self._add(network.name)
            return
        offset = transaction.producer.epoch * 1000 + transaction.number

        def learn(answer: Any) -> None:
            if code_of(answer) is NONE:
                network.ledger.offsets[transaction] = offset

        topic = TxnOffsetCommitRequestTopic(network.topic, [TxnOffsetCommitRequestPartition(0, offset, -1, "")])
        request = TxnOffsetCommitRequest(network.name, network.name, *self._me, topics=[topic])
        self._ask(request, 4 if self._keeps_epoch else 5, learn, lambda answer: None, self._give_up)

    def _add(self, what: int | str) -> None:
        """A partition, or the offsets of a group: in the first protocol a transaction must be told."""
        request: Any = AddOffsetsToTxnRequest(self._network.name, *self._me, str(what))
        if isinstance(what, int):
            topics = [AddPartitionsToTxnTopic(self._network.topic, [what])]
            request = AddPartitionsToTxnRequest([], self._network.name, *self._me, topics)
        self._ask(request, 3, lambda answer: None, lambda answer: self._added.add(what), self._give_up)

    def _give_up(self) -> None:
        self._wants_commit = False


_CODE_IN: dict[type, Callable[[Any], int]] = {
    ProduceResponse: lambda answer: answer.responses[0].partition_responses[0].error_code,
    TxnOffsetCommitResponse: lambda answer: answer.topics[0].partitions[0].error_code,
    AddPartitionsToTxnResponse: lambda answer: (
        answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    ),
}


def code_of(answer: Any) -> ErrorCode:
    """The error code of a response for one partition, or of the whole response."""
    find = _CODE_IN.get(type(answer))
    return ErrorCode(find(answer) if find else answer.error_code)
