"""Mutated requests of every API and version that has a table, from one seed.

A request begins as a valid message, made from its table with values that mean something to the broker (topics that
exist, partitions, timestamps) or that sit on a boundary. Then, mostly, something is done to it: to the record batches
in it; on purpose to one of its lengths, counts, varints or tagged fields, which its table tells where to find; to the
length of its frame; or to bytes anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any, NamedTuple

from barnabas.broker.handlers import BETWEEN_BROKERS, SERVED
from barnabas.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.registry import API_KEYS, api
from barnabas.wire.schema import Field, Kind, boolean, float64, records, string, table_of, uuid
from tests.hostile.batches import good_batches, maybe_mutated
from tests.hostile.bearable import Bearable
from tests.hostile.damage import damage
from tests.hostile.mutations import FRAME_LENGTH, mutated, wrong_frame_length
from tests.hostile.values import BOUNDARIES, CONFIG_NAMES, DOOMED, FIELDS, SIZES, TEXTS
from tests.hostile.wire import encode_request

NULLABLE_SHARE = 0.15
MUTATED_SHARE = 0.3
MISFRAMED_SHARE = 0.01
DAMAGED_SHARE = 0.25
ANYWHERE = "bytes anywhere"
_UNSERVED_ROUNDS = 20  # an API or version that is not served ends its connection: one round in so many has them


class Mutation(NamedTuple):
    kind: str
    field: str = ""


class Sent(NamedTuple):
    key: int
    version: int
    frame: bytes
    announced: int
    """The length that the frame is sent with: its own, unless it is misframed."""
    mutations: tuple[Mutation, ...] = ()

    @property
    def is_misframed(self) -> bool:
        return self.announced != len(self.frame)


Route = tuple[int, int]


def served_routes() -> list[Route]:
    """Every API and version that is answered, between brokers too."""
    return [
        (key, version)
        for key, (lowest, highest) in sorted((SERVED | BETWEEN_BROKERS).items())
        for version in range(max(lowest, api(key).min_version), highest + 1)
    ]


def unserved_routes() -> list[Route]:
    """Those that have a table only."""
    every = {
        (each.key, version) for each in API_KEYS.values() for version in range(each.min_version, each.max_version + 1)
    }
    return sorted(every - set(served_routes()))


class Fuzzer:
    """Makes requests. Everything follows from the seed, the topic ids aside."""

    def __init__(self, seed: int, topic_ids: list[bytes]) -> None:
        self._rng = random.Random(seed)
        self._topic_ids = [*topic_ids, bytes(16), bytes(range(16))]
        self._batches = list(good_batches(self._rng))
        self._is_bearable = Bearable()
        self._mutations: list[Mutation] = []  # of the request that is being made

    def requests(self, count: int, routes: list[Route] | None = None) -> Iterator[Sent]:
        """`count` requests, every API and version that is served, or those given, as often as any other."""
        rounds = cycle(routes) if routes else _rounds(served_routes(), unserved_routes())
        for number, (key, version) in enumerate(islice(rounds, count)):
            while (sent := self._request(key, version, number)) is None:
                pass
            yield sent

    def _request(self, key: int, version: int, number: int) -> Sent | None:
        """A request, unless what the broker would take it for is too much to bear."""
        self._mutations = []
        request = self._maybe_changed(self._valid(key, version, number))
        announced = len(request)
        if self._rng.random() < MISFRAMED_SHARE:
            announced = wrong_frame_length(self._rng, len(request))
            self._mutations.append(Mutation(FRAME_LENGTH))
        if not self._is_bearable(request[: max(announced, 0)]):
            return None
        return Sent(key, version, request, announced, tuple(self._mutations))

    def _maybe_changed(self, request: bytes) -> bytes:
        rng = self._rng
        chance = rng.random()
        if chance < MUTATED_SHARE:
            request, kind, field = mutated(rng, request)
            self._mutations.append(Mutation(kind, field))
        elif chance < MUTATED_SHARE + DAMAGED_SHARE:
            changed = bytearray(request)
            for _ in range(rng.choice((1, 1, 1, 2, 5))):
                # Mostly behind API key, version and correlation id, or another request would be damaged than is meant.
                damage(rng, changed, 0 if rng.random() < 0.05 else 8)
            request = bytes(changed)
            self._mutations.append(Mutation(ANYWHERE))
        return request

    # valid messages

    def _valid(self, key: int, version: int, correlation_id: int) -> bytes:
        return encode_request(self._struct(api(key).request, version), version, correlation_id & 0x7FFFFFFF)

    def _struct(self, cls: type[Any], version: int) -> Any:
        values = {}
        for field in table_of(cls):
            if field.versions.has(version) and (field.tag is None or self._rng.random() < 0.5):
                values[field.name] = self._field(cls, field, version)
        return cls(**values)

    def _field(self, cls: type[Any], field: Field, version: int) -> Any:
        rng = self._rng
        if field.nullable.has(version) and rng.random() < NULLABLE_SHARE:
            return None
        if field.is_array:
            assert field.of is not None
            return [self._value(cls, field.name, field.of, version) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        return self._value(cls, field.name, field.of or field.kind, version)

    def _value(self, cls: type[Any], name: str, kind: Kind | type, version: int) -> Any:
        rng = self._rng
        if isinstance(kind, type):
            return self._struct(kind, version)
        if kind is records:
            return self._batch(name)
        if kind is uuid:
            return rng.choice(self._topic_ids[-2:] if cls is DeleteTopicState else self._topic_ids)
        if kind is boolean:
            return rng.random() < 0.5
        if kind is float64:
            return rng.choice((0.0, -1.0, 1e300))
        if kind is string:
            return rng.choice(self._texts(cls, name))
        if kind.name not in SIZES:
            return rng.randbytes(rng.choice((0, 1, 10, 300)))
        known = FIELDS.get(name)
        if known is not None and rng.random() < 0.9:
            return rng.choice(known)
        return _fitting(kind, rng.choice(BOUNDARIES))

    def _batch(self, name: str) -> bytes:
        batch, kind = maybe_mutated(self._rng, self._rng.choice(self._batches))
        if kind:
            self._mutations.append(Mutation(kind, name))
        return batch

    def _texts(self, cls: type[Any], name: str) -> tuple[str, ...]:
        if name == "name" and "Config" in cls.__name__:
            return CONFIG_NAMES
        if cls in (DeleteTopicsRequest, DeleteTopicState) and self._rng.random() < 0.98:
            return DOOMED
        return FIELDS.get(name, TEXTS)


def _rounds(often: list[Route], seldom: list[Route]) -> Iterator[Route]:
    while True:
        for _ in range(_UNSERVED_ROUNDS):
            yield from often
        yield from seldom


def _fitting(kind: Kind, value: int) -> int:
    """The value cut to the size of its field."""
    bits = 8 * SIZES[kind.name]
    value &= (1 << bits) - 1
    return value if kind.name.startswith("u") or value < 1 << (bits - 1) else value - (1 << bits)
