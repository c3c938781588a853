"""A coordinator, partitions, producers that share a transactional id, and a network that delays, repeats and reorders.

Every message lies in one bag until the seed draws it, and may be drawn again. The coordinator's records are committed
some time after they were decided; until then their replies and markers are held back, and a crash drops them, or falls
between the decision and its markers. Producers ask again when they are impatient, and a new one may come at any time.
What must always hold is checked as it happens, and once more when all has settled.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from barnabas.coordinator.outcome import CoordinatorRecord, Now
from barnabas.coordinator.transaction import (
    ENDING,
    LAST_EPOCH,
    LAST_PRODUCER_EPOCH,
    ProducerIdAndEpoch,
    TopicPartition,
    Transaction,
)
from barnabas.coordinator.transaction_log import decode_transaction, transaction_record
from barnabas.coordinator.transaction_shard import MarkerToWrite, TransactionOutcome, TransactionShard
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.storage.producer_state import NO_OFFSET, ProducerStates
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

ID = "shared"
TIMEOUT_MS = 1_000
NOBODY = ProducerIdAndEpoch(-1, -1)
NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS

Message = Callable[[], None]


class Data(NamedTuple):
    """A record in a partition; in version 2 the producer's epoch says which transaction it belongs to."""

    producer: ProducerIdAndEpoch


class Marker(NamedTuple):
    producer: ProducerIdAndEpoch
    commit: bool


class Partition:
    """The leader of a partition, as much of it as transactions need: it never loses anything."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.log: list[Data | Marker] = []
        self.producers = ProducerStates()

    def append(self, producer: ProducerIdAndEpoch, sequence: int) -> None:
        """KafkaError if it is refused; a duplicate is as good as done."""
        if self.producers.check_batch(*producer, sequence, sequence, True) is None:
            offset = len(self.log)
            self.producers.add_batch(*producer, sequence, offset, offset, 0, True)
            self.log.append(Data(producer))

    def write(self, marker: MarkerToWrite) -> None:
        producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        self.producers.check_marker(*producer, marker.coordinator_epoch, marker.transaction_version)
        self.producers.add_marker(*producer, marker.coordinator_epoch, len(self.log), 0, not marker.commit)
        self.log.append(Marker(producer, marker.commit))

    def outcomes(self) -> dict[ProducerIdAndEpoch, bool | None]:
        """What became of each transaction's records here; None for an open one."""
        found: dict[ProducerIdAndEpoch, bool | None] = {}
        open_: dict[int, ProducerIdAndEpoch] = {}
        for entry in self.log:
            producer = entry.producer
            if isinstance(entry, Data):
                assert open_.setdefault(producer.producer_id, producer) == producer, "two transactions in one"
                assert found.setdefault(producer, None) is None, "a record came after the end of its transaction"
            elif (ended := open_.pop(producer.producer_id, None)) is not None:
                assert ended.epoch + 1 == producer.epoch, "a marker ended another transaction"
                found[ended] = entry.commit
        return found


class Client:
    """A producer of version 2: begins, writes, ends, and asks again. It may think it is alive when it is not."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.restart()

    def restart(self) -> None:
        self.me = NOBODY
        self.request: Message | None = None  # what it waits for
        self.sequences: dict[TopicPartition, int] = {}
        self.wants_commit: bool | None = None

    def act(self) -> None:
        random = self.world.random
        if self.request is not None:
            if random.random() < 0.2:
                self.world.send(self.request)
        elif self.me == NOBODY or random.random() < 0.02:
            if self is self.world.successor:
                self._ask(lambda me: self.world.init_producer_id(me, self._initialised))
        elif self.wants_commit is not None or random.random() < 0.3:
            if self.wants_commit is None:
                self.wants_commit = random.random() < 0.6
            commit = self.wants_commit
            self._ask(lambda me: self.world.end_txn(me, commit, lambda *answer: self._ended(me, commit, *answer)))
        else:
            partition = random.choice(self.world.partitions)
            sequence = self.sequences.get(partition.name, 0)
            self._ask(
                lambda me: self.world.produce(
                    me, partition, sequence, lambda code: self._produced(me, partition, sequence, code)
                )
            )

    def _ask(self, call: Callable[[ProducerIdAndEpoch], None]) -> None:
        me = self.me
        self.request = lambda: call(me)
        self.world.send(self.request)

    def _initialised(self, code: ErrorCode, producer: ProducerIdAndEpoch) -> None:
        if code is NONE and producer.epoch > self.me.epoch:
            self._begin(producer)
        elif code is CONCURRENT:
            self.request = None
        elif code is not NONE:
            self.restart()

    def _produced(self, me: ProducerIdAndEpoch, partition: Partition, sequence: int, code: ErrorCode) -> None:
        if me != self.me:
            return
        self.request = None
        if code is NONE:
            self.world.acknowledged.add((me, partition.name))
            self.sequences[partition.name] = max(self.sequences.get(partition.name, 0), sequence + 1)
        elif code is not CONCURRENT:
            self.wants_commit = False

    def _ended(self, me: ProducerIdAndEpoch, commit: bool, code: ErrorCode, following: ProducerIdAndEpoch) -> None:
        if code is NONE:
            self.world.told_end(me, commit)
        if me != self.me:
            return
        if code is NONE:
            self._begin(following)
        elif code is CONCURRENT:
            self.request = None
        else:
            self.restart()

    def _begin(self, producer: ProducerIdAndEpoch) -> None:
        self.restart()
        self.me = producer


class World:
    def __init__(self, seed: int, partitions: int = 2, clients: int = 2) -> None:
        self.random = Random(seed)
        self.bag: list[Message] = []
        self.partitions = [Partition(TopicPartition("t", index)) for index in range(partitions)]
        self.by_name = {partition.name: partition for partition in self.partitions}
        self.late: list[Message] = []  # copies of what was delivered, to come again
        self.clients = [Client(self) for _ in range(clients)]
        self.successor = self.clients[0]  # the one that is meant to be alive; the others may not know
        self.now = Now(0, 1_000_000)
        self.records: list[CoordinatorRecord] = []  # the committed ones
        self.uncommitted: list[tuple[TransactionOutcome, dict[int, Callable[..., None]]]] = []
        self.coordinator_epoch = 0
        self.tokens = 0
        self.next_producer_id = 1
        self.decided: dict[ProducerIdAndEpoch, bool] = {}
        self.acknowledged: set[tuple[ProducerIdAndEpoch, TopicPartition]] = set()
        self.fenced_below = NOBODY
        self.highest = NOBODY
        if self.random.random() < 0.3:  # epochs about to run out
            epoch = LAST_PRODUCER_EPOCH - self.random.randrange(4)
            self.records.append(transaction_record(Transaction(ID, self._producer_id(), epoch, TIMEOUT_MS, 1_000_000)))
        self.shard = self._load()

    def _producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    # the network

    def send(self, message: Message) -> None:
        self.bag.append(message)

    def deliver(self, repeat: float = 0.12) -> None:
        """One message; now and then it comes again, much later."""
        bag = self.late if self.late and (not self.bag or self.random.random() < 0.1) else self.bag
        index = self.random.randrange(len(bag))
        message = bag[index]
        bag[index] = bag[-1]
        bag.pop()
        if self.random.random() < repeat:
            self.late.append(message)
        message()

    def step(self) -> None:
        random = self.random
        draw = random.random()
        if draw < 0.04:
            random.choice((self.crash, self.pass_time, self.successor.restart, self.succeed))()
        elif self.uncommitted and draw < 0.5:
            self.commit()
        elif self.bag and draw < 0.85:
            self.deliver()
        else:
            (self.successor if random.random() < 0.8 else random.choice(self.clients)).act()

    def succeed(self) -> None:
        """Another producer begins, without a word to the one before."""
        self.successor = self.random.choice(self.clients)
        self.successor.restart()

    # the coordinator

    def _load(self) -> TransactionShard:
        self.coordinator_epoch += 1
        shard = self.shard = self._replayed(self.records[-1:])  # each holds all: the log may be compacted
        self._take(shard.loaded(self.now), {})
        return shard

    def _replayed(self, records: list[CoordinatorRecord]) -> TransactionShard:
        shard = TransactionShard(
            self.coordinator_epoch, self._producer_id, max_timeout_ms=TIMEOUT_MS, id_expiration_ms=10**9
        )
        for offset, record in enumerate(records):
            shard.replay(record, offset, -1)
        return shard

    def crash(self) -> None:
        """Another broker takes over, with what was committed."""
        self.uncommitted.clear()
        self._load()

    def pass_time(self) -> None:
        ms = self.random.choice((10, 600, 1_100))
        self.now = Now(self.now.monotonic_ms + ms, self.now.wall_ms + ms)
        deadline_ms = self.shard.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= self.now.monotonic_ms:
            self._take(self.shard.expire(self.now), {})

    def _take(self, outcome: TransactionOutcome, waiting: dict[int, Callable[..., None]]) -> None:
        self.uncommitted.append((outcome, waiting))

    def commit(self) -> None:
        outcome, waiting = self.uncommitted.pop(0)
        for record in outcome.records:
            self.records.append(record)
            self._check_record(record)
        for marker in outcome.markers:
            for partition in marker.partitions:
                self._send_marker(marker, self.by_name[partition], self.coordinator_epoch)
        for token, response in outcome.replies:
            assert isinstance(token, int)
            waiting[token](response)

    def _check_record(self, record: CoordinatorRecord) -> None:
        _, transaction = decode_transaction(record)
        assert transaction is not None
        producer = transaction.producer
        assert producer >= self.highest, "the epoch went back"
        self.highest = producer
        if transaction.state in ENDING:
            ended = ProducerIdAndEpoch(producer.producer_id, producer.epoch - 1)
            assert ended not in self.decided, "a transaction was decided twice"
            self.decided[ended] = transaction.is_commit

    def _send_marker(self, marker: MarkerToWrite, partition: Partition, coordinator_epoch: int) -> None:
        def write() -> None:
            try:
                partition.write(marker)
            except KafkaError:
                return  # late: the partition has gone on
            self.send(acknowledge)

        def acknowledge() -> None:
            if self.coordinator_epoch == coordinator_epoch:
                self._take(self.shard.markers_written(marker, [partition.name], self.now), {})

        self.send(write)

    def _call(
        self,
        operation: Callable[[int], TransactionOutcome],
        replied: Callable[..., None],
    ) -> None:
        self.tokens += 1
        self._take(operation(self.tokens), {self.tokens: replied})

    def init_producer_id(self, me: ProducerIdAndEpoch, answer: Callable[..., None]) -> None:
        def replied(response: InitProducerIdResponse) -> None:
            producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            self.fenced_below = max(self.fenced_below, producer)
            self.send(lambda: answer(ErrorCode(response.error_code), producer))

        request = InitProducerIdRequest(ID, TIMEOUT_MS, *me)
        self._call(lambda token: self.shard.init_producer_id(request, 5, token, self.now), replied)

    def end_txn(self, me: ProducerIdAndEpoch, commit: bool, answer: Callable[..., None]) -> None:
        def replied(response: EndTxnResponse) -> None:
            producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            assert response.error_code != NONE or producer > me, "the end of a transaction did not raise the epoch"
            self.send(lambda: answer(ErrorCode(response.error_code), producer))

        request = EndTxnRequest(ID, *me, commit)
        self._call(lambda token: self.shard.end_txn(request, 5, token, self.now), replied)

    def produce(
        self, me: ProducerIdAndEpoch, partition: Partition, sequence: int, answer: Callable[[ErrorCode], None]
    ) -> None:
        """The leader first has the partition added to the transaction, then appends."""

        def added(result: AddPartitionsToTxnResult) -> None:
            code = ErrorCode(result.topic_results[0].results_by_partition[0].partition_error_code)
            self.send(append if code is NONE else lambda: answer(code))

        def append() -> None:
            code = NONE
            length = len(partition.log)
            try:
                partition.append(me, sequence)
            except KafkaError as error:
                code = error.code
            if len(partition.log) > length:
                assert me >= self.fenced_below, "a zombie has written"
            self.send(lambda: answer(code))

        topics = [AddPartitionsToTxnTopic(partition.name.topic, [partition.name.partition])]
        request = AddPartitionsToTxnTransaction(ID, *me, False, topics)
        self._call(lambda token: self.shard.add_partitions_to_txn(request, 5, token, self.now), added)

    def told_end(self, me: ProducerIdAndEpoch, commit: bool) -> None:
        assert self.decided[me] is commit, "the producer was told another end than was decided"

    # the end

    def settle(self) -> None:
        """Everybody has done; what is on its way arrives, in any order, but no more than once."""
        self._drain()
        closing: list[tuple[ErrorCode, ProducerIdAndEpoch]] = []
        for _ in range(5):
            self.init_producer_id(NOBODY, lambda *answer: closing.append(answer))
            self._drain()
            if closing[-1][0] is NONE:
                break
        assert closing[-1][0] is NONE, "the transactional id never settles"
        self.check_replay()
        for partition in self.partitions:
            for entry in partition.producers.entries.values():
                assert entry.current_txn_first_offset == NO_OFFSET, "a transaction stays open"
            outcomes = partition.outcomes()
            for producer, committed in outcomes.items():
                assert committed is self.decided[producer], "a partition has another end than was decided"
            for producer, name in self.acknowledged:
                if name == partition.name:
                    assert producer in outcomes, "an acknowledged record is lost"

    def _drain(self) -> None:
        for client in self.clients:
            client.act = lambda: None  # type: ignore[method-assign]
        while self.bag or self.late or self.uncommitted:
            if self.uncommitted and self.random.random() < 0.5:
                self.commit()
            elif self.bag or self.late:
                self.deliver(repeat=0)

    def check_replay(self) -> None:
        """What the log tells is what the shard knows, but for the markers that were written already."""
        if not self.uncommitted:
            live, replayed = self.shard.transactions.get(ID), self._replayed(self.records).transactions.get(ID)
            if live is not None and live.state in ENDING and replayed is not None:
                assert live.partitions <= replayed.partitions
                live = live.without_partitions(live.partitions)
                replayed = replayed.without_partitions(replayed.partitions)
            assert live == replayed

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.check_replay()
        self.settle()
        assert self.highest.epoch <= LAST_EPOCH
