"""InitProducerId, AddPartitionsToTxn and EndTxn: who writes in a transaction, to which partitions, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.records.control import ControlType
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.k26_end_txn import EndTxnRequest
from tests.broker.servers import barnabas_only
from tests.broker.transactional import (
    END_WITHOUT_EPOCH,
    PRODUCE_ADDING,
    PRODUCE_VERIFIED,
    TRANSACTION,
    TransactionalProducer,
    codes_by_place,
    codes_of,
    committed_values,
    describe,
    find_coordinator,
    markers_in,
    settled,
    unique,
)
from tests.broker.wire_client import Client
from tests.peers import eventually

MAX_TIMEOUT_MS = 900_000
INIT_VERSIONS = range(6)
INIT_WITH_EPOCH = range(3, 6)
ADD_VERSIONS = range(6)
END_VERSIONS = range(6)


@pytest.fixture
def producer(client: Client) -> TransactionalProducer:
    return TransactionalProducer(client)


@pytest.fixture
def initialise(client: Client) -> Callable[..., Any]:
    """InitProducerId for a transactional id that has a coordinator."""

    def call(name: str, timeout_ms: int = 1000, producer_id: int = -1, epoch: int = -1, version: int = 5) -> Any:
        find_coordinator(client, name, TRANSACTION)
        request = InitProducerIdRequest(name, timeout_ms, producer_id, epoch)
        return settled(lambda: client.call(request, version))

    return call


def fenced(version: int, known_since: int) -> ErrorCode:
    """A producer whose time is over is told so in the words of its time (KIP-588)."""
    return ErrorCode.PRODUCER_FENCED if version >= known_since else ErrorCode.INVALID_PRODUCER_EPOCH


# InitProducerId


@pytest.mark.parametrize("version", INIT_VERSIONS)
def test_every_initialisation_raises_the_epoch(initialise: Callable[..., Any], version: int) -> None:
    name = unique("x")
    first, second, third = (initialise(name, version=version) for _ in range(3))
    assert {answer.error_code for answer in (first, second, third)} == {ErrorCode.NONE}
    assert [answer.producer_epoch for answer in (first, second, third)] == [0, 1, 2]
    assert first.producer_id == second.producer_id == third.producer_id


@pytest.mark.parametrize("version", INIT_VERSIONS)
@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [
        (1, ErrorCode.NONE),
        (MAX_TIMEOUT_MS, ErrorCode.NONE),
        (MAX_TIMEOUT_MS + 1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_transaction_may_take_only_so_long(
    initialise: Callable[..., Any], version: int, timeout_ms: int, code: ErrorCode
) -> None:
    answer = initialise(unique("x"), timeout_ms, version=version)
    assert ErrorCode(answer.error_code) is code
    if code is not ErrorCode.NONE:
        assert answer.producer_id == -1


def test_a_refused_time_out_leaves_no_trace(client: Client, initialise: Callable[..., Any]) -> None:
    name = unique("x")
    initialise(name, 0)
    assert ErrorCode(describe(client, name).error_code) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("version", INIT_VERSIONS)
def test_a_successor_aborts_what_its_predecessor_left_open(client: Client, version: int) -> None:
    topic = client.create_topic()
    old = TransactionalProducer(client)
    old.write(topic, b"lost")
    successor = TransactionalProducer(client, old.name)
    successor.initialise(version)
    assert successor.id == old.id
    assert successor.epoch > old.epoch
    assert markers_in(client, topic) == [(old.id, ControlType.ABORT)]
    assert committed_values(client, topic) == []
    assert ErrorCode(old.send(topic, b"late").error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    successor.write(topic, b"kept")
    successor.end(commit=True)
    assert committed_values(client, topic) == [b"kept"]


def test_a_successor_is_told_to_come_again_until_the_abort_is_done(client: Client) -> None:
    topic = client.create_topic()
    old = TransactionalProducer(client)
    old.write(topic, b"lost")
    answer = client.call(InitProducerIdRequest(old.name, 1000))
    assert (ErrorCode(answer.error_code), answer.producer_id) == (ErrorCode.CONCURRENT_TRANSACTIONS, -1)


@pytest.mark.parametrize("version", INIT_WITH_EPOCH)
def test_a_producer_that_names_its_epoch_gets_the_next(initialise: Callable[..., Any], version: int) -> None:
    name = unique("x")
    first = initialise(name)
    bumped = initialise(name, 1000, first.producer_id, first.producer_epoch, version)
    assert (bumped.error_code, bumped.producer_id) == (ErrorCode.NONE, first.producer_id)
    assert bumped.producer_epoch == first.producer_epoch + 1


@pytest.mark.parametrize("version", INIT_WITH_EPOCH)
def test_a_repeated_request_for_the_next_epoch_gets_the_same(initialise: Callable[..., Any], version: int) -> None:
    name = unique("x")
    first = initialise(name)
    bumped = [initialise(name, 1000, first.producer_id, first.producer_epoch, version) for _ in range(2)]
    assert [answer.error_code for answer in bumped] == [ErrorCode.NONE] * 2
    assert [answer.producer_epoch for answer in bumped] == [1, 1]


@pytest.mark.parametrize("version", INIT_WITH_EPOCH)
@pytest.mark.parametrize(("other_id", "other_epoch"), [(0, -1), (0, 1), (1, 0)], ids=["past", "future", "stranger"])
def test_whoever_names_another_producer_is_fenced(
    initialise: Callable[..., Any], version: int, other_id: int, other_epoch: int
) -> None:
    name = unique("x")
    initialise(name)
    present = initialise(name)  # no last epoch is remembered: nobody may ask again
    answer = initialise(name, 1000, present.producer_id + other_id, present.producer_epoch + other_epoch, version)
    assert ErrorCode(answer.error_code) is fenced(version, 4)
    assert initialise(name).producer_epoch == present.producer_epoch + 1


@barnabas_only("in Kafka a zombie is fenced too, but has the transaction of its successor aborted before that")
def test_a_zombie_that_names_its_epoch_does_not_abort_its_successor(client: Client) -> None:
    topic = client.create_topic()
    zombie = TransactionalProducer(client)
    successor = TransactionalProducer(client, zombie.name)
    successor.write(topic, b"kept")
    answer = client.call(InitProducerIdRequest(zombie.name, 1000, zombie.id, zombie.epoch))
    assert ErrorCode(answer.error_code) is ErrorCode.PRODUCER_FENCED
    successor.end(commit=True)
    assert committed_values(client, topic) == [b"kept"]


# AddPartitionsToTxn


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_added_partitions_are_part_of_the_transaction(producer: TransactionalProducer, version: int) -> None:
    client = producer.client
    topics = [(client.create_topic(3), (0, 2)), (client.create_topic(), (0,))]
    request = producer.add_request(*topics, version=version)
    assert codes_of(client.call(request, version)) == [ErrorCode.NONE] * 3
    found = describe(client, producer.name)
    assert found.transaction_state == "Ongoing"
    assert {each.topic: set(each.partitions) for each in found.topics} == {name: set(at) for name, at in topics}


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_adding_again_changes_nothing(producer: TransactionalProducer, version: int) -> None:
    client = producer.client
    request = producer.add_request((client.create_topic(), (0,)), version=version)
    assert [codes_of(client.call(request, version)) for _ in range(2)] == [[ErrorCode.NONE]] * 2
    assert len(describe(client, producer.name).topics) == 1


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_all_partitions_are_added_or_none(producer: TransactionalProducer, topic_name: str, version: int) -> None:
    client = producer.client
    there = client.create_topic()
    request = producer.add_request((there, (0, 1)), (topic_name, (0,)), version=version)
    assert codes_by_place(client.call(request, version)) == {
        (there, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (there, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (topic_name, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert describe(client, producer.name).transaction_state == "Empty"


@pytest.mark.parametrize("version", ADD_VERSIONS)
@pytest.mark.parametrize(
    ("other_id", "other_epoch", "code"),
    [
        (0, -1, ErrorCode.PRODUCER_FENCED),
        (0, 1, ErrorCode.PRODUCER_FENCED),
        (1, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_only_the_present_producer_adds_partitions(
    producer: TransactionalProducer, version: int, other_id: int, other_epoch: int, code: ErrorCode
) -> None:
    client = producer.client
    producer.initialise()
    request = producer.add_request(
        (client.create_topic(), (0,)),
        version=version,
        producer_id=producer.id + other_id,
        epoch=producer.epoch + other_epoch,
    )
    if code is ErrorCode.PRODUCER_FENCED:
        code = fenced(version, 2)
    assert codes_of(client.call(request, version)) == [code]
    assert producer.state() == "Empty"


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_partitions_of_an_id_that_was_never_initialised(
    producer: TransactionalProducer, client: Client, version: int
) -> None:
    topic = client.create_topic()
    producer.name = unique("x")
    request = producer.add_request((topic, (0,)), version=version)
    answer = settled(lambda: codes_of(client.call(request, version)), lambda codes: codes[0])
    assert answer == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("version", [4, 5])
def test_a_question_adds_nothing(producer: TransactionalProducer, version: int) -> None:
    client = producer.client
    topic = client.create_topic(2)
    assert producer.add(topic, 0) is ErrorCode.NONE
    request = producer.add_request((topic, (0, 1)), version=version, is_verified_only=True)
    assert codes_of(client.call(request, version)) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert [each.partitions for each in describe(client, producer.name).topics] == [[0]]


@pytest.mark.parametrize("version", [4, 5])
def test_a_question_about_nothing_ongoing_is_answered_no(producer: TransactionalProducer, version: int) -> None:
    client = producer.client
    request = producer.add_request((client.create_topic(), (0,)), version=version, is_verified_only=True)
    assert codes_of(client.call(request, version)) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert producer.state() == "Empty"


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_for_several_transactions_at_once(client: Client, version: int) -> None:
    topic = client.create_topic()
    one, other = TransactionalProducer(client), TransactionalProducer(client)
    place = [AddPartitionsToTxnTopic(topic, [0])]
    asked = [
        AddPartitionsToTxnTransaction(one.name, one.id, one.epoch, False, place),
        AddPartitionsToTxnTransaction(other.name, other.id, other.epoch + 1, False, place),
    ]
    answer = client.call(AddPartitionsToTxnRequest(asked), version)
    assert answer.error_code == ErrorCode.NONE
    assert {
        result.transactional_id: result.topic_results[0].results_by_partition[0].partition_error_code
        for result in answer.results_by_transaction
    } == {one.name: ErrorCode.NONE, other.name: ErrorCode.PRODUCER_FENCED}
    assert (one.state(), other.state()) == ("Ongoing", "Empty")


# Produce


def test_an_older_producer_adds_its_partitions_first(producer: TransactionalProducer) -> None:
    topic = producer.client.create_topic()
    refused = producer.send(topic, b"too early", version=PRODUCE_VERIFIED)
    assert ErrorCode(refused.error_code) is ErrorCode.TRANSACTION_ABORTABLE
    producer.add(topic)
    assert producer.send(topic, b"a", version=PRODUCE_VERIFIED).error_code == ErrorCode.NONE
    producer.end(commit=True, version=END_WITHOUT_EPOCH)
    assert committed_values(producer.client, topic) == [b"a"]


@pytest.mark.parametrize("version", range(3, PRODUCE_VERIFIED))
def test_a_producer_that_knows_no_aborting_is_told_of_a_wrong_state(
    producer: TransactionalProducer, version: int
) -> None:
    refused = producer.send(producer.client.create_topic(), b"too early", version=version)
    assert ErrorCode(refused.error_code) is ErrorCode.INVALID_TXN_STATE


def test_a_newer_producer_adds_them_by_writing(producer: TransactionalProducer) -> None:
    topic = producer.client.create_topic(2)
    assert producer.send(topic, b"a", partition=1, version=PRODUCE_ADDING).error_code == ErrorCode.NONE
    assert [each.partitions for each in describe(producer.client, producer.name).topics] == [[1]]


# EndTxn


@pytest.mark.parametrize("version", END_VERSIONS)
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_ends_in_every_partition(producer: TransactionalProducer, version: int, commit: bool) -> None:
    client = producer.client
    topics = client.create_topic(2), client.create_topic()
    places = [(topics[0], 0), (topics[0], 1), (topics[1], 0)]
    producer_id = producer.id
    for topic, partition in places:
        producer.write(topic, b"a", b"b", partition=partition)
    producer.end(commit=commit, version=version)
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    for topic, partition in places:
        assert markers_in(client, topic, partition) == [(producer_id, kind)]
        assert committed_values(client, topic, partition) == ([b"a", b"b"] if commit else [])
    found = describe(client, producer.name)
    assert (found.transaction_state, found.topics) == ("CompleteCommit" if commit else "CompleteAbort", [])


@pytest.mark.parametrize("version", END_VERSIONS)
def test_the_epoch_rises_with_every_transaction_of_the_second_protocol(
    producer: TransactionalProducer, version: int
) -> None:
    client = producer.client
    producer.add(client.create_topic())
    answer = client.call(producer.end_request(committed=True), version)
    rises = version > END_WITHOUT_EPOCH
    assert answer.error_code == ErrorCode.NONE
    assert (answer.producer_id, answer.producer_epoch) == ((producer.id, producer.epoch + 1) if rises else (-1, -1))
    eventually(producer.state, "CompleteCommit")
    assert describe(client, producer.name).producer_epoch == producer.epoch + rises


@pytest.mark.parametrize("version", END_VERSIONS)
def test_there_must_be_something_to_commit(producer: TransactionalProducer, version: int) -> None:
    answer = producer.client.call(producer.end_request(committed=True), version)
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", END_VERSIONS)
def test_only_the_second_protocol_aborts_what_it_never_began(producer: TransactionalProducer, version: int) -> None:
    answer = settled(lambda: producer.client.call(producer.end_request(committed=False), version))
    expected = ErrorCode.NONE if version > END_WITHOUT_EPOCH else ErrorCode.INVALID_TXN_STATE
    assert ErrorCode(answer.error_code) is expected


@pytest.mark.parametrize("version", END_VERSIONS)
@pytest.mark.parametrize(
    ("other_id", "other_epoch", "code"),
    [
        (0, -1, ErrorCode.PRODUCER_FENCED),
        (0, 1, ErrorCode.PRODUCER_FENCED),
        (1, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_only_the_present_producer_ends_its_transaction(
    producer: TransactionalProducer, version: int, other_id: int, other_epoch: int, code: ErrorCode
) -> None:
    producer.initialise()
    producer.add(producer.client.create_topic())
    request = producer.end_request(True, producer.epoch + other_epoch, producer.id + other_id)
    answer = producer.client.call(request, version)
    expected = fenced(version, 2) if code is ErrorCode.PRODUCER_FENCED else code
    assert ErrorCode(answer.error_code) is expected
    assert producer.state() == "Ongoing"


@pytest.mark.parametrize("version", END_VERSIONS)
@pytest.mark.parametrize(
    ("name", "code"), [("", ErrorCode.INVALID_REQUEST), ("never-seen", ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
)
def test_the_end_of_an_id_that_is_not_there(
    producer: TransactionalProducer, version: int, name: str, code: ErrorCode
) -> None:
    client = producer.client
    answer = settled(lambda: client.call(EndTxnRequest(name, producer.id, producer.epoch, True), version))
    assert ErrorCode(answer.error_code) is code


def test_one_transaction_after_another(producer: TransactionalProducer) -> None:
    client = producer.client
    topic = client.create_topic()
    for number in range(4):
        producer.write(topic, b"%d" % number)
        producer.end(commit=number % 2 == 0)
    assert committed_values(client, topic) == [b"0", b"2"]
    assert [kind for _, kind in markers_in(client, topic)] == [ControlType.COMMIT, ControlType.ABORT] * 2
