"""Internal topics with damage in them: what cannot be read is passed over and named, and everything else is loaded."""

from __future__ import annotations

import re
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


def skipped(broker: Broker, topic: str) -> set[int]:
    """The offsets that the log says were passed over."""
    return {int(at) for at in re.findall(rf" skipped topic={topic} partition=0 offset=(\d+) ", broker.log.read_text())}


UNKNOWN_TYPE = {"unknown-type-of-key": patched(lambda place: place.key, UNKNOWN)}
UNREADABLE = {
    "key-without-end": patched(lambda place: place.key + 2, FAR_TOO_LONG),
    "unknown-version-of-value": patched(lambda place: place.value, UNKNOWN),
}
UNREADABLE_OFFSETS = UNREADABLE | {"value-without-end": patched(lambda place: place.value + 14, FAR_TOO_LONG)}
UNREADABLE_TRANSACTIONS = UNREADABLE | {"unknown-state": patched(lambda place: place.value + 16, b"\x63")}


@pytest.mark.parametrize(
    "damages",
    [
        pytest.param(UNKNOWN_TYPE, id="of another kind"),
        pytest.param(UNREADABLE_OFFSETS, id="unreadable", marks=barnabas_only(GIVES_UP)),
        pytest.param({"wrong-crc": wrong_crc}, id="wrong CRC", marks=barnabas_only("Kafka does not look at it")),
    ],
)
def test_damaged_offsets_are_passed_over_and_the_other_groups_are_loaded(
    tmp_path: Path, damages: dict[str, Damage]
) -> None:
    with start(tmp_path / "own", SETTINGS) as broker, Group(broker.address, "classic") as group:
        client = group.client
        topic = client.create_topic()
        member = group.member()
        group.settle(member)
        for name in ("before", *damages, "after"):
            assert commit(client, name, topic, 1) == ErrorCode.NONE
        join = ConsumerGroupHeartbeatRequest("modern", "m", 0, None, None, 30_000, [topic], topic_partitions=[])
        epoch = client.call(join).member_epoch
    segment = segment_of(broker, "__consumer_offsets")
    places = {damage_record(segment, name.encode(), damage) for name, damage in damages.items()}
    with start(tmp_path / "own", SETTINGS) as broker, Client(broker.address) as client:
        await_coordinator(client, "classic")
        assert ON_KAFKA or skipped(broker, "__consumer_offsets") == places
        found = {name: fetched(client, name, topic).committed_offset for name in ("before", *damages, "after")}
        assert found == {"before": 1, **dict.fromkeys(damages, -1), "after": 1}
        with Group(broker.address, "classic") as group:
            again = group.member()
            again.member_id, again.generation_id = member.member_id, member.generation_id
            assert again.heartbeat() == ErrorCode.NONE
        assert client.call(ConsumerGroupHeartbeatRequest("modern", "m", epoch)).error_code == ErrorCode.NONE
        for name in damages:
            assert commit(client, name, topic, 4) == ErrorCode.NONE
            assert fetched(client, name, topic).committed_offset == 4


@barnabas_only(GIVES_UP)
def test_damaged_transactional_ids_are_passed_over_and_the_others_are_loaded(tmp_path: Path) -> None:
    damages = UNKNOWN_TYPE | UNREADABLE_TRANSACTIONS
    with start(tmp_path / "own", SETTINGS) as broker, Client(broker.address) as client:
        open_one, *victims, idle = (TransactionalProducer(client, name) for name in ("open", *damages, "idle"))
        open_one.write(client.create_topic(), b"pending")
    segment = segment_of(broker, "__transaction_state")
    places = {damage_record(segment, name.encode(), damage) for name, damage in damages.items()}
    with start(tmp_path / "own", SETTINGS) as broker, Client(broker.address) as client:
        found = {name: describe(client, name) for name in ("open", *damages, "idle")}
        assert {name: (ErrorCode(told.error_code), told.transaction_state) for name, told in found.items()} == {
            "open": (ErrorCode.NONE, "Ongoing"),
            **dict.fromkeys(damages, (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "")),
            "idle": (ErrorCode.NONE, "Empty"),
        }
        assert skipped(broker, "__transaction_state") == places
        again = settled(lambda: client.call(InitProducerIdRequest("idle", 60_000)))
        assert (again.producer_id, again.producer_epoch) == (idle.id, idle.epoch + 1)
        open_one.client = client
        open_one.end(commit=True)
        anew = TransactionalProducer(client, victims[0].name)
        assert anew.id not in {open_one.id, idle.id, *(victim.id for victim in victims)}
