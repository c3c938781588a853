"""Internal topics with damage in them: what cannot be read is passed over and named, and everything else is loaded."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from crc32c import crc32c

from barnabas.core.errors import ErrorCode
from barnabas.records.batch import headers
from barnabas.records.reader import records_of
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.group_client import Group, await_coordinator, commit, fetched
from tests.broker.servers import ON_KAFKA, barnabas_only, start
from tests.broker.transactional import TransactionalProducer, describe, settled
from tests.broker.wire_client import Client
from tests.peers import Broker

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
GIVES_UP = "Kafka serves nothing of a partition that has such a record in it"
CRC_AT, CRC_FROM = 17, 21
FAR_TOO_LONG = struct.pack(">h", 0x7FFF)
UNKNOWN = struct.pack(">h", 99)


class Place(NamedTuple):
    """Where a record is: its offset, and where its batch, key and value begin in the file."""

    offset: int
    batch: int
    batch_end: int
    key: int
    value: int


Damage = Callable[[bytearray, Place], None]


def segment_of(broker: Broker, topic: str) -> Path:
    (segment,) = broker.data_dir.glob(f"**/{topic}-0/*.log")
    return segment


def damage_record(segment: Path, marked: bytes, damage: Damage) -> int:
    """Damage the last record that has these bytes in its key; the record's offset."""
    data = bytearray(segment.read_bytes())
    found: list[Place] = []
    view = memoryview(bytes(data))
    for at, header in headers(view):
        end = at + header.size
        for record in () if header.is_control else records_of(view[at:end]):
            if record.key is not None and record.value is not None and marked in record.key:
                key = data.index(record.key, at, end)
                value = data.index(record.value, key + len(record.key), end)
                found.append(Place(record.offset, at, end, key, value))
    damage(data, found[-1])
    segment.write_bytes(data)
    return found[-1].offset


def patched(where: Callable[[Place], int], what: bytes) -> Damage:
    """Other bytes in one place, and a CRC that is right again."""

    def damage(data: bytearray, place: Place) -> None:
        data[where(place) : where(place) + len(what)] = what
        crc = crc32c(bytes(data[place.batch + CRC_FROM : place.batch_end]))
        struct.pack_into(">I", data, place.batch + CRC_AT, crc)

    return damage


def wrong_crc(data: bytearray, place: Place) -> None:
    data[place.batch + CRC_AT] ^= 0xFF


def was_told(broker: Broker, topic: str, offset: int) -> None:
    if ON_KAFKA:
        return
    lines = [line for line in broker.log.read_text().splitlines() if " skipped " in line]
    assert {f"topic={topic} partition=0 offset={offset} " in line for line in lines} == {True}, broker.tail()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(patched(lambda place: place.key, UNKNOWN), id="unknown type of key"),
        pytest.param(
            patched(lambda place: place.key + 2, FAR_TOO_LONG), id="key without end", marks=barnabas_only(GIVES_UP)
        ),
        pytest.param(
            patched(lambda place: place.value, UNKNOWN), id="unknown version of value", marks=barnabas_only(GIVES_UP)
        ),
        pytest.param(
            patched(lambda place: place.value + 14, FAR_TOO_LONG), id="value without end", marks=barnabas_only(GIVES_UP)
        ),
        pytest.param(wrong_crc, id="wrong CRC", marks=barnabas_only("Kafka does not look at it")),
    ],
)
def test_a_damaged_offset_is_passed_over_and_the_other_groups_are_loaded(tmp_path: Path, damage: Damage) -> None:
    with start(tmp_path / "own", SETTINGS) as broker, Group(broker.address, "classic") as group:
        client = group.client
        topic = client.create_topic()
        member = group.member()
        group.settle(member)
        for name, offset in (("before", 1), ("the-victim", 2), ("after", 3)):
            assert commit(client, name, topic, offset) == ErrorCode.NONE
        join = ConsumerGroupHeartbeatRequest("modern", "m", 0, None, None, 30_000, [topic], topic_partitions=[])
        epoch = client.call(join).member_epoch
    at = damage_record(segment_of(broker, "__consumer_offsets"), b"the-victim", damage)
    with start(tmp_path / "own", SETTINGS) as broker, Client(broker.address) as client:
        await_coordinator(client, "classic")
        offsets = [fetched(client, name, topic).committed_offset for name in ("before", "the-victim", "after")]
        assert offsets == [1, -1, 3]
        was_told(broker, "__consumer_offsets", at)
        with Group(broker.address, "classic") as group:
            again = group.member()
            again.member_id, again.generation_id = member.member_id, member.generation_id
            assert again.heartbeat() == ErrorCode.NONE
        beat = ConsumerGroupHeartbeatRequest("modern", "m", epoch)
        assert client.call(beat).error_code == ErrorCode.NONE
        assert commit(client, "the-victim", topic, 4) == ErrorCode.NONE
        assert fetched(client, "the-victim", topic).committed_offset == 4


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(patched(lambda place: place.key, UNKNOWN), id="unknown type of key"),
        pytest.param(patched(lambda place: place.key + 2, FAR_TOO_LONG), id="key without end"),
        pytest.param(patched(lambda place: place.value, UNKNOWN), id="unknown version of value"),
        pytest.param(patched(lambda place: place.value + 16, b"\x63"), id="unknown state"),
    ],
)
@barnabas_only(GIVES_UP)
def test_a_damaged_transactional_id_is_passed_over_and_the_others_are_loaded(tmp_path: Path, damage: Damage) -> None:
    with start(tmp_path / "own", SETTINGS) as broker, Client(broker.address) as client:
        before, victim, after = (TransactionalProducer(client, name) for name in ("before", "the-victim", "after"))
        topic = client.create_topic()
        before.write(topic, b"pending")
    at = damage_record(segment_of(broker, "__transaction_state"), b"the-victim", damage)
    with start(tmp_path / "own", SETTINGS) as broker, Client(broker.address) as client:
        found = {producer.name: describe(client, producer.name) for producer in (before, victim, after)}
        assert {name: (ErrorCode(told.error_code), told.transaction_state) for name, told in found.items()} == {
            "before": (ErrorCode.NONE, "Ongoing"),
            "the-victim": (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ""),
            "after": (ErrorCode.NONE, "Empty"),
        }
        was_told(broker, "__transaction_state", at)
        again = settled(lambda: client.call(InitProducerIdRequest("after", 60_000)))
        assert (again.producer_id, again.producer_epoch) == (after.id, after.epoch + 1)
        before.client = client
        before.end(commit=True)
        anew = settled(lambda: client.call(InitProducerIdRequest("the-victim", 60_000)))
        assert anew.error_code == ErrorCode.NONE
        assert anew.producer_id not in (before.id, victim.id, after.id)
