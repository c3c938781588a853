"""What the fuzzer sends: everything that has a table, the same for the same seed, and nothing that spoils the rest."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.messages.k64_unregister_broker import UnregisterBrokerRequest
from barnabas.wire.registry import API_KEYS, api
from barnabas.wire.schema import schema_of
from tests.hostile.bearable import MOST_NAMES, MOST_PARTITIONS, Bearable
from tests.hostile.fuzzer import Fuzzer, served_routes
from tests.hostile.wire import encode_request

TOPIC_IDS = [bytes([number]) * 16 for number in range(1, 9)]


def test_a_seed_repeats_its_requests() -> None:
    first, again, other = (list(Fuzzer(seed, TOPIC_IDS).requests(500)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_every_api_and_version_that_has_a_table_is_sent() -> None:
    sent = {(request.key, request.version) for request in Fuzzer(7, TOPIC_IDS).requests(21 * len(served_routes()))}
    wanted = {
        (each.key, version) for each in API_KEYS.values() for version in range(each.min_version, each.max_version + 1)
    }
    assert sent == wanted


SPOILERS = (
    (UnregisterBrokerRequest(1), UnregisterBrokerRequest(2)),
    (BrokerHeartbeatRequest(1, 5, want_fence=True), BrokerHeartbeatRequest(1, 5)),
    (BrokerHeartbeatRequest(1, 5, want_shut_down=True), BrokerHeartbeatRequest(2, 5)),
    (DeleteTopicsRequest([DeleteTopicState("plain")]), DeleteTopicsRequest([DeleteTopicState("gone")])),
    (
        CreatePartitionsRequest([CreatePartitionsTopic("plain", MOST_PARTITIONS + 1)]),
        CreatePartitionsRequest([CreatePartitionsTopic("plain", MOST_PARTITIONS)]),
    ),
    (
        CreateTopicsRequest([CreatableTopic("absent", MOST_PARTITIONS + 1, 1)]),
        CreateTopicsRequest([CreatableTopic("absent", MOST_PARTITIONS, 1)]),
    ),
    (
        CreateTopicsRequest([CreatableTopic(f"t{number}", 1, 1) for number in range(MOST_NAMES)]),
        CreateTopicsRequest([CreatableTopic("t0", 1, 1)]),
    ),
)


@pytest.mark.parametrize(("spoiler", "harmless"), SPOILERS, ids=lambda message: type(message).__name__)
def test_what_would_be_obeyed_and_spoil_the_rest_is_left_out(spoiler: Any, harmless: Any) -> None:
    version = api(schema_of(type(spoiler)).key).max_version
    is_bearable = Bearable()
    assert not is_bearable(encode_request(spoiler, version))
    assert is_bearable(encode_request(harmless, version))
    assert is_bearable(encode_request(spoiler, version)[:-3])  # which is no request any more
