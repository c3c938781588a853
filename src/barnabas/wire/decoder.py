"""Writes the function that decodes one version of one message.

Every read either fails on its own when the bytes run out (`unpack_from`, an index), or moves the position beyond the
end (a slice), where the next read or the check before the return finds it. The number of elements is held against the
bytes that are left before the loop begins. In a request all elements together are bounded too, because an element of a
few bytes becomes an object of a few hundred.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from barnabas.wire.codegen import Writer
from barnabas.wire.primitives import (
    COMPACT_STRING,
    SHORT_STRING,
    DecodeError,
    decode_uvarint,
    long_string,
    skip_tagged,
)
from barnabas.wire.schema import Field, Kind, schema_of, string, table_of

MAX_REQUEST_ELEMENTS = 100_000  # far more partitions than any client asks about at once


class DecodeWriter(Writer):
    direction = "decode"
    library: ClassVar[dict[str, Any]] = {
        "DecodeError": DecodeError,
        "StructError": struct.error,
        "compact_string": COMPACT_STRING,
        "decode_uvarint": decode_uvarint,
        "long_string": long_string,
        "new": object.__new__,
        "short_string": SHORT_STRING,
        "skip_tagged": skip_tagged,
    }

    @property
    def is_request(self) -> bool:
        return schema_of(self.cls).role == "request"

    def body(self) -> None:
        with self.block("def decode(buffer, position=0):"):
            self.line("end = len(buffer)")
            if self.is_request:
                self.line(f"elements_left = {MAX_REQUEST_ELEMENTS}")
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
        plain = self.plain_fields(cls)
        for field in table_of(cls):
            if field not in plain:
                self.line(f"{target}.{field.name} = {self.default(field)}")
        for field in plain:
            self.field(field, f"{target}.{field.name}")
        if self.flexible:
            self.tags(cls, target)

    def default(self, field: Field) -> str:
        """The default as an expression: a fresh one where it is mutable."""
        return f"{self.named(field.default)}()" if isinstance(field.default, type) else repr(field.default)

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
        refusal = f'raise DecodeError(f"{{{self.where}}}: length {{{size}}} is not allowed")'
        if not nullable:
            with self.block(f"if {size} < 0:"):
                self.line(refusal)
            yield
            return
        with self.block(f"if {size} == -1:"):
            self.line(f"{target} = None")
        if not self.flexible:
            with self.block(f"elif {size} < 0:"):
                self.line(refusal)
        with self.block("else:"):
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
            if self.is_request:
                self.line(f"elements_left -= {size}")
                with self.block("if elements_left < 0:"):
                    fault = f"{self.title} has more than {MAX_REQUEST_ELEMENTS} elements in its lists"
                    self.line(f"raise DecodeError({fault!r})")
            if isinstance(of, Kind) and of.format is not None:
                unpack = self.packer(of.format, "iter_unpack")
                self.line(f"{items} = position + {size} * {least}")
                self.line(f"{target} = [item for item, in {unpack}(buffer[position:{items}])]")
                self.line(f"position = {items}")
                return
            self.line(f"{target} = {items} = []")
            with self.block(f"for _ in range({size}):"):
                with self.inside():
                    if isinstance(of, type):
                        self.struct(of, item)
                    else:
                        self.primitive(of, item, nullable=False)
                self.line(f"{items}.append({item})")

    def nested(self, of: type, target: str, nullable: bool, tagged: bool) -> None:
        item, mark = self.local("item"), self.local("mark")
        if not nullable:
            self.flush()
            with self.inside():
                self.struct(of, item)
            self.line(f"{target} = {item}")
            return
        self.fixed("b", mark)
        self.flush()
        with self.block(f"if {mark} {'<=' if tagged else '<'} 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.nested(of, target, nullable=False, tagged=tagged)

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
                        with self.inside():
                            self.field(field, f"{target}.{field.name}")
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
        return max(1, sum(self.least_field_size(field) for field in self.plain_fields(of)) + self.flexible)

    def least_field_size(self, field: Field) -> int:
        if field.is_array:
            return 1 if self.flexible else 4
        if isinstance(field.of, type):
            return 1 if field.nullable.has(self.version) else self.least_size(field.of)
        return self.least_size(field.kind)
