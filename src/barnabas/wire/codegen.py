"""What the writers of decoders and encoders share: lines of source, the names they use, and the run.

The run is what makes the code fast: fields of fixed size are not written out one by one, but collected, and leave as
one call of a precompiled `struct.Struct` when something of another kind comes up. The first byte of a compact length,
and the count of tagged fields, join it too.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from barnabas.wire.schema import Field, Kind, schema_of, table_of


class Writer(ABC):
    """Writes one function, for one version of one message."""

    direction: ClassVar[str]
    library: ClassVar[dict[str, Any]]
    """What the function calls, by name."""

    def __init__(self, cls: type, version: int) -> None:
        self.cls = cls
        self.version = version
        self.title = f"{cls.__name__} v{version}"
        self.flexible = schema_of(cls).flexible.has(version)
        self.lines: list[str] = []
        self.indent = 0
        self.depth = 0
        self.path: list[str] = []
        self.run: list[tuple[str, str]] = []
        self.names = dict(self.library)

    def source(self) -> str:
        if not self.lines:
            self.body()
        return "\n".join(self.lines) + "\n"

    def function(self) -> Any:
        exec(compile(self.source(), f"<{self.direction} {self.title}>", "exec"), self.names)
        return self.names[self.direction]

    @abstractmethod
    def body(self) -> None:
        """Write the whole function."""

    @abstractmethod
    def array(self, of: Kind | type, place: str, nullable: bool) -> None: ...

    @abstractmethod
    def nested(self, of: type, place: str, nullable: bool, tagged: bool) -> None: ...

    @abstractmethod
    def primitive(self, kind: Kind, place: str, nullable: bool) -> None: ...

    @abstractmethod
    def flush(self) -> None:
        """Write the run, if there is one."""

    def field(self, field: Field, place: str) -> None:
        """Write what reads a field into `place`, or writes it from there."""
        self.path.append(field.name)
        nullable = field.nullable.has(self.version)
        if field.is_array:
            assert field.of is not None
            self.array(field.of, place, nullable)
        elif isinstance(field.of, type):
            self.nested(field.of, place, nullable, field.tagged.has(self.version))
        else:
            self.primitive(field.kind, place, nullable)
        self.path.pop()

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.indent += 1
        empty = len(self.lines)
        yield
        self.flush()
        if len(self.lines) == empty:
            self.line("pass")
        self.indent -= 1

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Write the inside of a list or struct, which has locals of its own; its run ends with it."""
        self.depth += 1
        yield
        self.flush()
        self.depth -= 1

    def local(self, name: str) -> str:
        return f"{name}{self.depth}"

    def fixed(self, format: str, place: str) -> None:
        """Add a field of fixed size to the run."""
        self.run.append((format, place))

    def take_run(self) -> tuple[str, str]:
        """The formats and the places of the run, which is then empty."""
        formats = "".join(format for format, _ in self.run)
        places = ", ".join(place for _, place in self.run)
        self.run = []
        return formats, places

    def packer(self, formats: str, method: str) -> str:
        """The name of a method of the struct with these formats."""
        name = f"{method}_{formats.replace('?', 'o')}"
        self.names[name] = getattr(struct.Struct(">" + formats), method)
        return name

    def named(self, cls: type) -> str:
        """The name of a class of the message."""
        name: str = cls.__name__
        if self.names.setdefault(name, cls) is not cls:
            raise TypeError(f"{self.title} has two structs of the name {name}")
        return name

    @property
    def where(self) -> str:
        """The field at hand, as a literal for error messages."""
        return repr(f"{self.title}, {'.'.join(self.path)}")

    def fields(self, cls: type) -> list[Field]:
        return [field for field in table_of(cls) if field.versions.has(self.version)]

    def plain_fields(self, cls: type) -> list[Field]:
        return [field for field in self.fields(cls) if not field.tagged.has(self.version)]

    def tagged_fields(self, cls: type) -> list[Field]:
        found = [field for field in self.fields(cls) if field.tagged.has(self.version)]
        return sorted(found, key=lambda field: field.tag or 0)
