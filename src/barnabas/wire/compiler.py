"""Table to codec: for each message and version, a decode and an encode function, made on first use.

Both are straight-line Python source, written by the two classes below and compiled with `exec`. Structs, arrays and
lengths are inlined; neighbouring fields of fixed size, and the length that follows them, become one call of a
precompiled `struct.Struct`. `source(cls, version)` shows the text.

Decoding trusts nothing. Counts are held against the bytes that are left before anything is allocated; a read beyond the
end either fails at once or shows up in the position, which is held against the end before anything is returned; so a
slice of `records` costs no check of its own. Encoding checks nothing until something goes wrong, and only then walks
the message for the field at fault.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from barnabas.wire import primitives
from barnabas.wire.faults import first_fault
from barnabas.wire.primitives import DecodeError, EncodeError
from barnabas.wire.schema import Buffer, Field, Kind, bytes_, records, schema_of, string, table_of, uuid

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
M_contra = TypeVar("M_contra", contravariant=True)


class Decode(Protocol[M_co]):
    def __call__(self, buffer: memoryview, position: int = 0) -> tuple[M_co, int]:
        """The message at `position` and the position after it; DecodeError if it is not one."""
        ...


class Encode(Protocol[M_contra]):
    def __call__(self, message: M_contra) -> list[Buffer]:
        """The message in parts, to be sent one after the other; values of `records` are parts as they are, uncopied."""
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
    return "\n\n".join(writer(cls, version).text() for writer in _WRITERS.values())


class _Writer:
    """What both directions share: lines, indentation, names that the code refers to, the run of fixed-size fields."""

    def __init__(self, cls: type, version: int) -> None:
        self.cls = cls
        self.version = version
        self.title = f"{cls.__name__} v{version}"
        self.flexible = schema_of(cls).flexible.has(version)
        self.lines: list[str] = []
        self.indent = 0
        self.depth = 0
        self.run: list[tuple[str, str]] = []
        self.path: list[str] = []
        self.names: dict[str, Any] = {
            "StructError": struct.error,
            "DecodeError": DecodeError,
            "EncodeError": EncodeError,
            "new": object.__new__,
            "short_string": primitives.SHORT_STRING,
            "compact_string": primitives.COMPACT_STRING,
            "long_string": primitives.long_string,
            "decode_uvarint": primitives.decode_uvarint,
            "encode_uvarint": primitives.encode_uvarint,
            "skip_tagged": primitives.skip_tagged,
            "tagged": primitives.tagged,
            "pack": struct.pack,
            "first_fault": first_fault,
        }

    def body(self) -> None:
        raise NotImplementedError

    def text(self) -> str:
        if not self.lines:
            self.body()
        return "\n".join(self.lines)

    def function(self) -> Any:
        text = self.text()
        direction = text[4 : text.index("(")]
        exec(compile(text, f"<{direction} {self.cls.__name__} v{self.version}>", "exec"), self.names)
        return self.names[direction]

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

    def fixed(self, format: str, operand: str) -> None:
        """Add a field of fixed size to the run."""
        self.run.append((format, operand))

    def flush(self) -> None:
        raise NotImplementedError

    def take_run(self) -> tuple[str, str]:
        """The formats and the operands of the run, which is then empty."""
        formats = "".join(format for format, _ in self.run)
        operands = ", ".join(operand for _, operand in self.run)
        self.run = []
        return formats, operands

    def packer(self, formats: str, method: str) -> str:
        """The name of `method` of the struct with these formats."""
        name = f"{method}_{formats.replace('?', 'o')}"
        self.names[name] = getattr(struct.Struct(">" + formats), method)
        return name

    def named(self, cls: type) -> str:
        self.names[cls.__name__] = cls
        return cls.__name__

    def local(self, name: str) -> str:
        return f"{name}{self.depth}"

    @property
    def where(self) -> str:
        return repr(f"{self.title}, {'.'.join(self.path)}")

    def wire_fields(self, cls: type) -> list[Field]:
        return [f for f in table_of(cls) if f.versions.has(self.version) and not self.is_tagged(f)]

    def tagged_fields(self, cls: type) -> list[Field]:
        found = [f for f in table_of(cls) if f.versions.has(self.version) and self.is_tagged(f)]
        return sorted(found, key=lambda f: f.tag or 0)

    def is_tagged(self, field: Field) -> bool:
        return field.tagged.has(self.version)

    def constant(self, value: Any) -> str:
        """An expression for a default: a fresh one where it is mutable."""
        return f"{self.named(value)}()" if isinstance(value, type) else repr(value)


class _DecodeWriter(_Writer):
    def body(self) -> None:
        with self.block("def decode(buffer, position=0):"):
            self.line("end = len(buffer)")
            with self.block("try:"):
                self.struct(self.cls, "message")
            with self.block("except (StructError, IndexError) as error:"):
                self.line(f'raise DecodeError(f"{self.title} is cut short: it ends at byte {{end}}") from error')
            with self.block("except UnicodeDecodeError as error:"):
                self.line(f'raise DecodeError(f"{self.title} has a string that is not UTF-8: {{error}}") from error')
            with self.block("if position > end:"):
                self.line(
                    f'raise DecodeError(f"{self.title} is cut short: it needs {{position}} bytes, {{end}} are there")'
                )
            self.line("return message, position")

    def flush(self) -> None:
        if not self.run:
            return
        formats, targets = self.take_run()
        if formats == "B":
            self.line(f"{targets} = buffer[position]")
        else:
            comma = "" if "," in targets else ","
            self.line(f"{targets}{comma} = {self.packer(formats, 'unpack_from')}(buffer, position)")
        self.line(f"position += {struct.calcsize('>' + formats)}")

    def struct(self, cls: type, target: str) -> None:
        """Read a struct into the local `target`."""
        self.line(f"{target} = new({self.named(cls)})")
        on_wire = self.wire_fields(cls)
        for field in table_of(cls):
            if field not in on_wire:
                self.line(f"{target}.{field.name} = {self.constant(field.default)}")
        for field in on_wire:
            self.field(field, f"{target}.{field.name}")
        if self.flexible:
            self.tags(cls, target)

    def field(self, field: Field, target: str) -> None:
        self.path.append(field.name)
        nullable = field.nullable.has(self.version)
        if field.is_array:
            assert field.of is not None
            self.array(field.of, target, nullable)
        elif isinstance(field.of, type):
            self.nested(field.of, target, nullable)
        else:
            self.primitive(field.kind, target, nullable)
        self.path.pop()

    def primitive(self, kind: Kind, target: str, nullable: bool) -> None:
        if kind.format is not None:
            self.fixed(kind.format, target)
        elif kind is string:
            self.string(target, nullable)
        else:
            self.buffer(target, nullable)

    def length(self, format: str, size: str) -> None:
        """Read a length into the local `size`; a compact one stays one too high, and above 127 is not yet whole."""
        self.fixed("B" if self.flexible else format, size)
        self.flush()

    def string(self, target: str, nullable: bool) -> None:
        size = self.local("size")
        null = f"{target} = None" if nullable else f'raise DecodeError({self.where} ": null is not allowed")'
        self.length("h", size)
        if self.flexible:
            with self.block(f"if {size} > 127:"):
                self.line(f"{size}, position = decode_uvarint(buffer, position - 1)")
                self.line(f"{target} = long_string(buffer, position, {size} - 1, {self.where})")
                self.line(f"position += {size} - 1")
            with self.block(f"elif {size}:"):
                self.line(f"{target} = compact_string[{size}](buffer, position)[0].decode()")
                self.line(f"position += {size} - 1")
        else:
            with self.block(f"if 0 <= {size} < 128:"):
                self.line(f"{target} = short_string[{size}](buffer, position)[0].decode()")
                self.line(f"position += {size}")
            with self.block(f"elif {size} != -1:"):
                self.line(f"{target} = long_string(buffer, position, {size}, {self.where})")
                self.line(f"position += {size}")
        with self.block("else:"):
            self.line(null)

    def full_length(self, size: str) -> None:
        """Read the four-byte or compact length of bytes or of an array; -1 stands for null."""
        self.length("i", size)
        if self.flexible:
            with self.block(f"if {size} > 127:"):
                self.line(f"{size}, position = decode_uvarint(buffer, position - 1)")
            self.line(f"{size} -= 1")

    @contextmanager
    def unless_null(self, size: str, target: str, nullable: bool) -> Iterator[None]:
        """Deal with a negative length, and indent what follows if it may be null."""
        with self.block(f"if {size} < 0:"):
            if not nullable:
                self.line(f'raise DecodeError(f"{{{self.where}}}: length {{{size}}} is not allowed")')
            elif not self.flexible:
                with self.block(f"if {size} != -1:"):
                    self.line(f'raise DecodeError(f"{{{self.where}}}: length {{{size}}} is not allowed")')
            if nullable:
                self.line(f"{target} = None")
        if nullable:
            with self.block("else:"):
                yield
        else:
            yield

    def buffer(self, target: str, nullable: bool) -> None:
        size = self.local("size")
        self.full_length(size)
        with self.unless_null(size, target, nullable):
            self.line(f"{target} = buffer[position : position + {size}]")
            self.line(f"position += {size}")

    def array(self, of: Kind | type, target: str, nullable: bool) -> None:
        size, items, item = self.local("size"), self.local("items"), self.local("item")
        self.full_length(size)
        with self.unless_null(size, target, nullable):
            least = self.least_size(of)
            with self.block(f"if {size} * {least} > end - position:"):
                self.line(
                    f'raise DecodeError(f"{{{self.where}}}: {{{size}}} elements cannot be in {{end - position}} bytes")'
                )
            if isinstance(of, Kind) and of.format is not None:
                unpack = self.packer(of.format, "iter_unpack")
                self.line(f"{items} = position + {size} * {least}")
                self.line(f"{target} = [item for item, in {unpack}(buffer[position:{items}])]")
                self.line(f"position = {items}")
                return
            self.line(f"{target} = {items} = []")
            with self.block(f"for _ in range({size}):"):
                self.depth += 1
                if isinstance(of, type):
                    self.struct(of, item)
                else:
                    self.primitive(of, item, nullable=False)
                self.flush()
                self.depth -= 1
                self.line(f"{items}.append({item})")

    def nested(self, of: type, target: str, nullable: bool) -> None:
        item, mark = self.local("item"), self.local("mark")
        if not nullable:
            self.flush()
            self.depth += 1
            self.struct(of, item)
            self.depth -= 1
            self.flush()
            self.line(f"{target} = {item}")
            return
        self.fixed("b", mark)
        self.flush()
        with self.block(f"if {mark} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.nested(of, target, nullable=False)

    def tags(self, cls: type, target: str) -> None:
        count, tag, size, stop = (self.local(name) for name in ("count", "tag", "size", "stop"))
        known = self.tagged_fields(cls)
        self.fixed("B", count)
        self.flush()
        with self.block(f"if {count}:"):
            self.line(f"{count}, position = decode_uvarint(buffer, position - 1)")
            if not known:
                self.line(f"position = skip_tagged(buffer, position, {count})")
                return
            with self.block(f"for _ in range({count}):"):
                self.line(f"{tag}, position = decode_uvarint(buffer, position)")
                self.line(f"{size}, position = decode_uvarint(buffer, position)")
                self.line(f"{stop} = position + {size}")
                for number, field in enumerate(known):
                    with self.block(f"{'elif' if number else 'if'} {tag} == {field.tag}:"):
                        self.depth += 1
                        self.field(field, f"{target}.{field.name}")
                        self.flush()
                        self.depth -= 1
                        with self.block(f"if position != {stop}:"):
                            fault = f"{self.title}, tagged field {field.name} is not as long as it says"
                            self.line(f"raise DecodeError({fault!r})")
                with self.block("else:"):
                    self.line(f"position = {stop}")

    def least_size(self, of: Kind | type) -> int:
        """The fewest bytes that an element can take."""
        if isinstance(of, Kind):
            if of.format is not None:
                return struct.calcsize(">" + of.format)
            return 1 if self.flexible else 2 if of is string else 4
        return max(1, sum(self.least_field_size(field) for field in self.wire_fields(of)) + self.flexible)

    def least_field_size(self, field: Field) -> int:
        if field.is_array:
            return 1 if self.flexible else 4
        if isinstance(field.of, type):
            return 1 if field.nullable.has(self.version) else self.least_size(field.of)
        return self.least_size(field.kind)


class _EncodeWriter(_Writer):
    def body(self) -> None:
        self.out = "out"
        has_records = self.has_records(self.cls)
        with self.block("def encode(message):"):
            if has_records:
                self.line("parts = []")
            self.line("out = bytearray()")
            with self.block("try:"):
                self.struct(self.cls, "message")
            with self.block("except (StructError, ValueError, TypeError, AttributeError) as error:"):
                self.names["message_class"] = self.cls
                fault = f"first_fault(message, message_class, {self.version}, {self.flexible})"
                self.line(f'raise EncodeError(f"{self.title}, {{{fault} or error}}") from error')
            if has_records:
                with self.block("if out:"):
                    self.line("parts.append(out)")
                self.line("return parts")
            else:
                self.line("return [out]")

    def has_records(self, cls: type) -> bool:
        return any(
            field.kind is records or (isinstance(field.of, type) and self.has_records(field.of))
            for field in self.wire_fields(cls)
        )

    def flush(self) -> None:
        if not self.run:
            return
        formats, values = self.take_run()
        if formats == "B":
            self.line(f"{self.out}.append({values})")
        else:
            self.line(f"{self.out} += {self.packer(formats, 'pack')}({values})")

    def length(self, format: str, size: str) -> None:
        """Write the length in the local `size`, which is one too high if compact."""
        if not self.flexible:
            self.fixed(format, size)
            self.flush()
            return
        run = list(self.run)
        with self.block(f"if {size} < 128:"):
            self.fixed("B", size)
        self.run = run
        with self.block("else:"):
            self.flush()
            self.line(f"{self.out} += encode_uvarint({size})")

    def struct(self, cls: type, value: str) -> None:
        for field in self.wire_fields(cls):
            self.field(field, f"{value}.{field.name}")
        if self.flexible:
            self.tags(cls, value)

    def field(self, field: Field, value: str) -> None:
        nullable = field.nullable.has(self.version)
        if field.is_array:
            assert field.of is not None
            self.array(field.of, value, nullable)
        elif isinstance(field.of, type):
            self.nested(field.of, value, nullable)
        else:
            self.primitive(field.kind, value, nullable)

    def primitive(self, kind: Kind, value: str, nullable: bool) -> None:
        if kind is uuid:
            with self.block_keeping_run(f"if len({value}) != 16:"):
                self.line("raise ValueError")
        if kind.format is not None:
            # `?` would take None for False.
            self.fixed("b" if kind.format == "?" else kind.format, value)
        elif kind is string:
            self.string(value, nullable)
        else:
            self.buffer(kind, value, nullable)

    @contextmanager
    def block_keeping_run(self, head: str) -> Iterator[None]:
        """A block beside the stream of fields, such as a check: what is pending stays pending."""
        pending, self.run = self.run, []
        with self.block(head):
            yield
        self.run = pending

    def measured(self, value: str, item: str, size: str, nullable: bool, empty: str, convert: str = "") -> None:
        """Put the value into the local `item` and its length, as it is to be written, into `size`."""
        plus = " + 1" if self.flexible else ""
        if not nullable:
            self.line(f"{item} = {value}{convert}")
            self.line(f"{size} = len({item}){plus}")
            return
        self.line(f"{item} = {value}")
        with self.block_keeping_run(f"if {item} is None:"):
            self.line(f"{item} = {empty}")
            self.line(f"{size} = {0 if self.flexible else -1}")
        with self.block_keeping_run("else:"):
            if convert:
                self.line(f"{item} = {item}{convert}")
            self.line(f"{size} = len({item}){plus}")

    def string(self, value: str, nullable: bool) -> None:
        item, size = self.local("item"), self.local("size")
        self.measured(value, item, size, nullable, 'b""', ".encode()")
        if self.flexible:
            with self.block_keeping_run(f"if {size} > {primitives.MAX_STRING_BYTES + 1}:"):
                self.line("raise ValueError")
        self.length("h", size)
        self.line(f"{self.out} += {item}")

    def buffer(self, kind: Kind, value: str, nullable: bool) -> None:
        item, size = self.local("item"), self.local("size")
        self.measured(value, item, size, nullable, 'b""')
        self.length("i", size)
        if kind is bytes_:
            self.line(f"{self.out} += {item}")
            return
        with self.block(f"if {size} > {int(self.flexible)}:"):
            self.line("parts.append(out)")
            self.line(f"parts.append({item})")
            self.line("out = bytearray()")

    def array(self, of: Kind | type, value: str, nullable: bool) -> None:
        items, size, item = self.local("items"), self.local("size"), self.local("item")
        self.measured(value, items, size, nullable, "()")
        self.length("i", size)
        if isinstance(of, Kind) and of.format is not None and of is not uuid:
            format = "b" if of.format == "?" else of.format
            self.line(f'{self.out} += pack(f">{{len({items})}}{format}", *{items})')
            return
        with self.block(f"for {item} in {items}:"):
            self.depth += 1
            if isinstance(of, type):
                self.struct(of, item)
            else:
                self.primitive(of, item, nullable=False)
            self.flush()
            self.depth -= 1

    def nested(self, of: type, value: str, nullable: bool) -> None:
        item = self.local("item")
        self.line(f"{item} = {value}")
        self.depth += 1
        if not nullable:
            self.struct(of, item)
            # The names of this depth are about to be used again, perhaps before the run is written.
            self.flush()
        else:
            self.flush()
            with self.block(f"if {item} is None:"):
                self.fixed("b", "-1")
            with self.block("else:"):
                self.fixed("b", "1")
                self.struct(of, item)
        self.depth -= 1

    def tags(self, cls: type, value: str) -> None:
        known = self.tagged_fields(cls)
        if not known:
            self.fixed("B", "0")
            return
        count, section, out = self.local("count"), self.local("tagged"), self.local("out")
        self.line(f"{count} = 0")
        self.line(f'{section} = b""')
        for field in known:
            with self.block_keeping_run(f"if {self.differs(field, f'{value}.{field.name}')}:"):
                outer, self.out = self.out, out
                self.line(f"{out} = bytearray()")
                self.depth += 1
                self.field(field, f"{value}.{field.name}")
                self.flush()
                self.depth -= 1
                self.out = outer
                self.line(f"{count} += 1")
                self.line(f"{section} += tagged({field.tag}, {out})")
        self.fixed("B", count)
        self.flush()
        with self.block(f"if {count}:"):
            self.line(f"{self.out} += {section}")

    def differs(self, field: Field, value: str) -> str:
        """The condition on which a tagged field is written: it is not at its default."""
        if field.default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} is None or len({value})" if field.nullable.has(self.version) else f"len({value})"
        if isinstance(field.of, type):
            return " or ".join(self.differs(inner, f"{value}.{inner.name}") for inner in self.wire_fields(field.of))
        return f"{value} != {field.default!r}"


_WRITERS: dict[str, type[_Writer]] = {"decode": _DecodeWriter, "encode": _EncodeWriter}
