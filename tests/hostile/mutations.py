"""What is done on purpose to a length, a count, a varint or the tagged fields of a request. Each kind has a name."""

from __future__ import annotations

import random
from collections.abc import Callable

from barnabas.wire.primitives import decode_uvarint, encode_uvarint, tagged
from tests.hostile.places import Place, places_in
from tests.hostile.wire import MAX_FRAME_BYTES

HEADER_SHARE = 0.05
_MASK = 0xFFFFFFFF
_UNKNOWN_TAGS = (60, 127, 128, 1000, 2**31, _MASK)
_FIXED_BYTES = {"string": 2, "bytes": 4, "array": 4}
_TOO_LARGE = (b"\xff\xff\xff\xff\x1f", b"\xff\xff\xff\xff\xff\x01", b"\xff" * 9 + b"\x01", b"\xff" * 12)
_CUT = (b"\x80", b"\x81", b"\xff\xff", b"\xff\xff\xff\xff")


def mutated(rng: random.Random, request: bytes) -> tuple[bytes, str, str]:
    """A valid request with one thing wrong, or unusual; the kind of it, and the field."""
    header, body = places_in(request)
    by_what: dict[str, list[Place]] = {}
    for place in body if body and rng.random() >= HEADER_SHARE else header:
        by_what.setdefault(place.what, []).append(place)
    what = rng.choice(list(by_what))
    place = rng.choice(by_what[what])
    kinds = KINDS[what]
    if place.is_varint and rng.random() < 0.3:
        kinds = VARINT_KINDS
    kind = rng.choice(list(kinds))
    changed = bytearray(request)
    kinds[kind](rng, changed, place)
    return bytes(changed), kind, place.path


FRAME_LENGTH = "frame length"


def wrong_frame_length(rng: random.Random, size: int) -> int:
    """Another length than that of a frame of `size` bytes."""
    shorter = (0, 1, 4, 8, size // 2, size - 4, size - 1)
    longer = (size + 1, size + 4, 2 * size, 100_000, MAX_FRAME_BYTES)
    refused = (-1, -size, -(2**31), MAX_FRAME_BYTES + 1, 2**31 - 1)
    wrong = rng.choice(rng.choice((shorter, longer, refused)))
    return wrong if wrong != size else size + 1


# lengths and counts


def _wrong_length(rng: random.Random, data: bytearray, place: Place) -> None:
    told, end = _told(data, place)
    left = len(data) - end
    wrong = rng.choice((told - 1, told + 1, 2 * told + 1, 0, -1, -2, 127, 128, left, left + 1, 2**15 - 1, 2**31 - 1))
    if wrong == told:
        wrong += 1
    if place.is_varint:
        data[place.position : end] = encode_uvarint(wrong & _MASK)
    else:
        size = end - place.position
        data[place.position : end] = (wrong & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def _told(data: bytearray, place: Place) -> tuple[int, int]:
    """The length or count as it is written, and where it ends."""
    if place.is_varint:
        return decode_uvarint(memoryview(bytes(data)), place.position)
    end = place.position + _FIXED_BYTES[place.what]
    return int.from_bytes(data[place.position : end], "big", signed=True), end


# varints


def _over_long(rng: random.Random, data: bytearray, place: Place) -> None:
    """The same value in more bytes than it needs: legal up to five."""
    told, end = _told(data, place)
    size = max(end - place.position + 1, rng.randint(2, 5)) + rng.choice((0, 0, 0, 1, 5))
    groups = [told >> 7 * number & 0x7F | 0x80 for number in range(size)]
    groups[-1] &= 0x7F
    data[place.position : end] = bytes(groups)


def _too_large(rng: random.Random, data: bytearray, place: Place) -> None:
    data[place.position : _told(data, place)[1]] = rng.choice(_TOO_LARGE)


def _cut(rng: random.Random, data: bytearray, place: Place) -> None:
    """Another byte is announced, and the request is over."""
    data[place.position :] = rng.choice(_CUT)


# tagged fields

_Tags = list[tuple[int, bytes]]


def _unknown_tag(rng: random.Random, data: bytearray, place: Place) -> None:
    tags, end = _tags(data, place)
    tags.append((rng.choice(_UNKNOWN_TAGS), rng.randbytes(rng.choice((0, 1, 20, 200)))))
    _write_tags(data, place, end, tags)


def _duplicate_tag(rng: random.Random, data: bytearray, place: Place) -> None:
    tags, end = _tags(data, place)
    tags = tags or [(rng.choice(_UNKNOWN_TAGS), b"once")]
    tags += [rng.choice(tags)] * rng.choice((1, 1, 50))
    _write_tags(data, place, end, tags)


def _tags_out_of_order(rng: random.Random, data: bytearray, place: Place) -> None:
    tags, end = _tags(data, place)
    tags += [(tag, b"a") for tag in rng.sample(_UNKNOWN_TAGS, 2)]
    tags.sort(reverse=True)
    _write_tags(data, place, end, tags)


def _wrong_tag_size(rng: random.Random, data: bytearray, place: Place) -> None:
    tags, end = _tags(data, place)
    tag, value = tags[-1] if tags else (rng.randrange(4), rng.randbytes(rng.choice((0, 1, 20))))
    size = len(value)
    wrong = rng.choice((size + 1, max(size - 1, 1), 2 * size + 2, 127, len(data), 2**31 - 1, _MASK))
    _write_tags(data, place, end, tags[:-1], 1, encode_uvarint(tag) + encode_uvarint(wrong) + value)


def _wrong_tag_count(rng: random.Random, data: bytearray, place: Place) -> None:
    tags, end = _tags(data, place)
    _write_tags(data, place, end, tags, rng.choice((1, 2, 100, 2**31, _MASK - len(tags))))


def _tags(data: bytearray, place: Place) -> tuple[_Tags, int]:
    """The tagged fields at a place, and where they end."""
    view = memoryview(bytes(data))
    count, position = decode_uvarint(view, place.position)
    tags = []
    for _ in range(count):
        tag, position = decode_uvarint(view, position)
        size, position = decode_uvarint(view, position)
        tags.append((tag, bytes(view[position : position + size])))
        position += size
    return tags, position


def _write_tags(data: bytearray, place: Place, end: int, tags: _Tags, more: int = 0, rest: bytes = b"") -> None:
    """Put these in place of what is there up to `end`; `more` are counted than are there."""
    section = b"".join([tagged(tag, value) for tag, value in tags])
    data[place.position : end] = encode_uvarint(len(tags) + more) + section + rest


_Way = Callable[[random.Random, bytearray, Place], None]

VARINT_KINDS: dict[str, _Way] = {"over-long varint": _over_long, "too large varint": _too_large, "cut varint": _cut}
KINDS: dict[str, dict[str, _Way]] = {
    "string": {"string length": _wrong_length},
    "bytes": {"bytes length": _wrong_length},
    "array": {"array count": _wrong_length},
    "tags": {
        "unknown tag": _unknown_tag,
        "duplicate tag": _duplicate_tag,
        "tags out of order": _tags_out_of_order,
        "wrong tag size": _wrong_tag_size,
        "wrong tag count": _wrong_tag_count,
    },
}
"""The kinds by what a place has; those of varints fit every place that is one."""
