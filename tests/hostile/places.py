"""Where the lengths, counts and tagged fields of a request lie, by its table.

A decoder that the compiler writes as any other, but that also notes what it comes by, tells it of a valid request.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from barnabas.wire.decoder import DecodeWriter
from barnabas.wire.headers import decode_request_header
from barnabas.wire.registry import api
from barnabas.wire.schema import Kind

HEADER = "the header"


class Place(NamedTuple):
    """What begins at a position: the length of a `string` or of `bytes`, the count of an `array` or of `tags`."""

    what: str
    path: str
    """The names of the fields that lead there; of tags, to the struct that ends with them."""
    position: int
    is_varint: bool


def places_in(request: bytes) -> tuple[list[Place], list[Place]]:
    """Those of a request's header, and those of its body."""
    header = decode_request_header(memoryview(request))
    surveyor = _surveyor(header.api_key, header.api_version)
    places = [Place("string", HEADER, 8, False)]
    if surveyor.flexible:
        places.append(Place("tags", HEADER, header.body - 1, True))
    return places, surveyor.survey(memoryview(request), header.body)


@cache
def _surveyor(key: int, version: int) -> _Surveyor:
    return _Surveyor(api(key).request, version)


class _Surveyor(DecodeWriter):
    def __init__(self, cls: type, version: int) -> None:
        super().__init__(cls, version)
        self._found: list[Place] = []
        self.names.update(note=self._found.append, Place=Place)
        self._decode = self.function()

    def survey(self, buffer: memoryview, position: int) -> list[Place]:
        self._found.clear()
        self._decode(buffer, position)
        return self._found

    def string(self, target: str, nullable: bool) -> None:
        self._note("string")
        super().string(target, nullable)

    def buffer(self, target: str, nullable: bool) -> None:
        self._note("bytes")
        super().buffer(target, nullable)

    def array(self, of: Kind | type, target: str, nullable: bool) -> None:
        self._note("array")
        super().array(of, target, nullable)

    def tags(self, cls: type[Any], target: str) -> None:
        self._note("tags")
        super().tags(cls, target)

    def _note(self, what: str) -> None:
        self.flush()  # so that the position is that of what comes now
        self.line(f"note(Place({what!r}, {'.'.join(self.path)!r}, position, {self.flexible}))")
