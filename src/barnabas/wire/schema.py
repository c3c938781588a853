"""How a message is written down: one class per struct, one line per field, for all versions at once.

    @struct
    class PartitionProduceData:
        index: int = int32()
        records: Buffer | None = records(nullable="0+")

    @request(key=0, versions="3-13", flexible="9+")
    class ProduceRequest:
        acks: int = int16()
        topic_data: list[TopicProduceData] = array(TopicProduceData)

The order of the fields is their order on the wire. A field says in which versions it is there (all, unless it says
otherwise), in which it may be null, its default, and, if it is tagged, its tag and since when. The decorators turn the
class into a plain mutable dataclass with slots, in which every field has a default, and leave the table at
`cls.__table__`, and for a whole message its `Schema` at `cls.__schema__`. The compiler does the rest.

Values: ints, floats and bools as they are; `uuid` is 16 bytes; `string` is str; `bytes` and `records` are a memoryview
when decoded, and when encoded any buffer (`records` also anything that has a length and that the sender understands).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar, dataclass_transform

from barnabas.core.dataclass import dataclass, slotted

T = TypeVar("T")

Buffer: TypeAlias = Any  # the buffer protocol, which has no name in the typing of Python 3.11
ZERO_UUID = bytes(16)
_LATEST = 0x7FFF
_UNSET: Any = object()


class Versions(NamedTuple):
    """A closed range of versions, written `0+`, `3-7`, `4` or `none`."""

    lowest: int
    highest: int

    @staticmethod
    @cache  # every field has three, and most are the same
    def parse(text: str) -> Versions:
        if text == "none":
            return Versions(0, -1)
        if text.endswith("+"):
            return Versions(int(text[:-1]), _LATEST)
        lowest, _, highest = text.partition("-")
        return Versions(int(lowest), int(highest or lowest))

    def has(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.highest < self.lowest:
            return "none"
        if self.highest == _LATEST:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


ALL = Versions(0, _LATEST)
NONE = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of the protocol; calling it declares a field. `format` is struct's letter, if the size is fixed."""

    name: str
    format: str | None
    default: Any

    def __call__(
        self,
        versions: str = "0+",
        *,
        nullable: str = "none",
        default: Any = _UNSET,
        tag: int | None = None,
        tagged: str = "none",
    ) -> Any:
        return _field(self, None, versions, nullable, self.default if default is _UNSET else default, tag, tagged)


boolean = Kind("bool", "?", False)
int8 = Kind("int8", "b", 0)
int16 = Kind("int16", "h", 0)
int32 = Kind("int32", "i", 0)
int64 = Kind("int64", "q", 0)
uint16 = Kind("uint16", "H", 0)
uint32 = Kind("uint32", "I", 0)
float64 = Kind("float64", "d", 0.0)
uuid = Kind("uuid", "16s", ZERO_UUID)
string = Kind("string", None, "")
bytes_ = Kind("bytes", None, b"")
records = Kind("records", None, None)
_ARRAY = Kind("array", None, [])
_STRUCT = Kind("struct", None, None)


@dataclass(slots=True)
class Field:
    """One line of a table. `of` is the element of an array (a kind or a struct) or the class of a nested struct."""

    kind: Kind
    of: Kind | type | None
    versions: Versions
    nullable: Versions
    default: Any
    tag: int | None
    tagged: Versions
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def is_array(self) -> bool:
        return self.kind is _ARRAY

    @property
    def is_struct(self) -> bool:
        return self.kind is _STRUCT


def array(
    of: Kind | type,
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Any = _UNSET,
    tag: int | None = None,
    tagged: str = "none",
) -> Any:
    """A list of structs or of primitives; its default is empty, or `default=None`."""
    return _field(_ARRAY, of, versions, nullable, [] if default is _UNSET else default, tag, tagged)


def nested(
    of: type,
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Any = _UNSET,
    tag: int | None = None,
    tagged: str = "none",
) -> Any:
    """One struct in another; its default is the struct with all its defaults, or `default=None`."""
    return _field(_STRUCT, of, versions, nullable, of if default is _UNSET else default, tag, tagged)


def _field(
    kind: Kind, of: Kind | type | None, versions: str, nullable: str, default: Any, tag: int | None, tagged: str
) -> Field:
    if (tag is None) != (tagged == "none"):
        raise TypeError("`tag` and `tagged` go together")
    if kind is records and tag is not None:
        raise TypeError("records cannot be tagged: they travel as a part of their own")
    return Field(kind, of, Versions.parse(versions), Versions.parse(nullable), default, tag, Versions.parse(tagged))


class Schema(NamedTuple):
    """What a message as a whole says: `role` is request, response or data, `key` the API key (-1 for data)."""

    role: str
    key: int
    versions: Versions
    flexible: Versions


def _make_struct(cls: type[T]) -> type[T]:
    table = []
    for name in cls.__annotations__:
        declared = cls.__dict__.get(name)
        if not isinstance(declared, Field):
            raise TypeError(f"{cls.__name__}.{name} declares no field: write one of the kinds of barnabas.wire.schema")
        table.append(declared)
        if declared.default == []:
            setattr(cls, name, field(default_factory=list))
        elif isinstance(declared.default, type):
            setattr(cls, name, field(default_factory=declared.default))
        else:
            setattr(cls, name, declared.default)
    made = slotted()(cls)
    made.__table__ = tuple(table)  # type: ignore[attr-defined]
    return made


@dataclass_transform()
def struct(cls: type[T]) -> type[T]:
    """A struct inside a message; its versions are those of the message."""
    return _make_struct(cls)


@dataclass_transform()
def schema(*, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """A message that is no request or response: a record of the metadata log or of an internal topic."""
    return _message("data", -1, versions, flexible)


@dataclass_transform()
def request(*, key: int, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    return _message("request", key, versions, flexible)


@dataclass_transform()
def response(*, key: int, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    return _message("response", key, versions, flexible)


def _message(role: str, key: int, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    def decorate(cls: type[T]) -> type[T]:
        made = _make_struct(cls)
        made.__schema__ = Schema(role, key, Versions.parse(versions), Versions.parse(flexible))  # type: ignore[attr-defined]
        return made

    return decorate


def table_of(cls: type) -> tuple[Field, ...]:
    """The fields of a struct, in the order of the wire."""
    table: tuple[Field, ...] = cls.__table__  # type: ignore[attr-defined]
    return table


def schema_of(cls: type) -> Schema:
    """Versions and role of a whole message; TypeError for a struct that is only part of one."""
    found: Schema | None = getattr(cls, "__schema__", None)
    if found is None:
        raise TypeError(f"{cls.__name__} is no message: it has no versions of its own")
    return found
