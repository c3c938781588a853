"""What the fuzzer sends: everything that has a table, the same for the same seed, and nothing that spoils the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.wire.compiler import codec
from barnabas.wire.headers import decode_request_header
from barnabas.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.messages.k64_unregister_broker import UnregisterBrokerRequest
from barnabas.wire.primitives import DecodeError
from barnabas.wire.registry import API_KEYS, api
from barnabas.wire.schema import bytes_, records, schema_of, string, table_of
from tests.hostile.batches import KINDS as BATCH_KINDS
from tests.hostile.bearable import MOST_NAMES, MOST_PARTITIONS, Bearable
from tests.hostile.fuzzer import ANYWHERE, Fuzzer, Sent, served_routes
from tests.hostile.mutations import FRAME_LENGTH, KINDS, VARINT_KINDS
from tests.hostile.places import HEADER
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


OLDEST_AND_NEWEST = sorted(
    {edge(route for route in served_routes() if route[0] == key) for key, _ in served_routes() for edge in (min, max)}
)


@pytest.fixture(scope="module")
def many() -> list[Sent]:
    return list(Fuzzer(7, TOPIC_IDS).requests(60_000, OLDEST_AND_NEWEST))


def test_every_kind_of_mutation_is_done_to_every_api_that_it_fits(many: list[Sent]) -> None:
    done = {(sent.key, kind) for sent in many for kind, field in sent.mutations if field != HEADER}
    fitting = {(key, kind) for key, version in OLDEST_AND_NEWEST for kind in kinds_for(key, version)}
    assert fitting - done == set()


def kinds_for(key: int, version: int) -> Iterator[str]:
    yield from (FRAME_LENGTH, ANYWHERE)
    for what, _ in parts(api(key).request, version):
        yield from BATCH_KINDS if what == "records" else KINDS[what]
    if schema_of(api(key).request).flexible.has(version):
        yield from VARINT_KINDS


def parts(request: type, version: int) -> Iterator[tuple[str, str]]:
    """What has a length or a count in a version of a request, and the names that lead there."""
    is_flexible = schema_of(request).flexible.has(version)

    def inside(cls: type, path: str) -> Iterator[tuple[str, str]]:
        if is_flexible:
            yield "tags", path
        for field in table_of(cls):
            if field.versions.has(version):
                here = f"{path}.{field.name}".removeprefix(".")
                if field.is_array:
                    yield "array", here
                if isinstance(field.of, type):
                    yield from inside(field.of, here)
                elif string in (field.kind, field.of):
                    yield "string", here
                elif field.kind in (bytes_, records):
                    yield "bytes", here
                    if field.kind is records:
                        yield "records", here

    return inside(request, "")


def test_every_field_with_a_length_and_all_tagged_fields_are_mutated_nested_ones_too(many: list[Sent]) -> None:
    done = {(sent.key, WHAT[kind], field) for sent in many for kind, field in sent.mutations if kind in WHAT}
    there = {(key, *part) for key, version in OLDEST_AND_NEWEST for part in parts(api(key).request, version)}
    assert {place for place in there if place[1] != "records"} - done == set()


WHAT = {kind: what for what, kinds in KINDS.items() for kind in kinds}


HOPELESS = {"cut varint", "too large varint", "wrong tag count", FRAME_LENGTH}  # hardly ever a request any more


def test_a_share_of_every_kind_gets_past_the_parser(many: list[Sent]) -> None:
    made = Counter(sent.mutations[-1].kind for sent in many if sent.mutations)
    passed = Counter(sent.mutations[-1].kind for sent in many if sent.mutations and is_parsed(sent))
    shares = {kind: passed[kind] / made[kind] for kind in made.keys() - HOPELESS}
    assert {kind: share for kind, share in shares.items() if share < 0.05} == {}
    assert passed.total() > 0.15 * made.total()


def is_parsed(sent: Sent) -> bool:
    """Whether what the broker takes for the frame is a request."""
    if sent.announced > len(sent.frame):
        return False
    frame = memoryview(sent.frame[: max(sent.announced, 0)])
    try:
        header = decode_request_header(frame)
        codec(api(header.api_key).request, header.api_version).decode(frame, header.body)
    except (DecodeError, ValueError):
        return False
    return True


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
