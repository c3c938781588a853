"""Table to codec: for each message and version, a decode and an encode function, made on first use.

Both are straight-line Python source, with structs and lists inlined, that `decoder` and `encoder` write and `exec`
compiles; `source(cls, version)` shows it. A table is thus read once per version, and not once per message.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from barnabas.wire.codegen import Writer
from barnabas.wire.decoder import DecodeWriter
from barnabas.wire.encoder import EncodeWriter
from barnabas.wire.schema import Buffer, schema_of

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
M_contra = TypeVar("M_contra", contravariant=True)


class Decode(Protocol[M_co]):
    def __call__(self, buffer: memoryview, position: int = 0) -> tuple[M_co, int]:
        """The message at `position` and the position after it; DecodeError if it is not one."""
        ...


class Encode(Protocol[M_contra]):
    def __call__(self, message: M_contra, head: bytes = b"") -> list[Buffer]:
        """The message in parts, to be sent one after the other; values of `records` are parts as they are, uncopied.

        The first part, a bytearray, begins with `head`.
        """
        ...


class Codec(Generic[M]):
    """How one version of one message goes to bytes and back. Each direction is compiled when first asked for."""

    __slots__ = ("cls", "decode", "encode", "version")

    cls: type[M]
    version: int
    decode: Decode[M]
    encode: Encode[M]

    def __init__(self, cls: type[M], version: int) -> None:
        self.cls = cls
        self.version = version

    def __getattr__(self, name: str) -> Any:
        # Only reached while the slot is empty.
        if name not in _WRITERS:
            raise AttributeError(name)
        function = _WRITERS[name](self.cls, self.version).function()
        setattr(self, name, function)
        return function


_WRITERS: dict[str, type[Writer]] = {writer.direction: writer for writer in (DecodeWriter, EncodeWriter)}
_codecs: dict[tuple[type, int], Codec[Any]] = {}


def codec(cls: type[M], version: int) -> Codec[M]:
    """The codec of one version of a message; ValueError for a version that its table does not cover."""
    found = _codecs.get((cls, version))
    if found is None:
        versions = schema_of(cls).versions
        if not versions.has(version):
            raise ValueError(f"{cls.__name__} has versions {versions}, not {version}")
        found = _codecs[cls, version] = Codec(cls, version)
    return found


def source(cls: type, version: int) -> str:
    """The generated code of both directions, for reading."""
    return "\n\n".join(writer(cls, version).source() for writer in _WRITERS.values())
