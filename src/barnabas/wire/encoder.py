"""Writes the function that encodes one version of one message.

It checks next to nothing: a value that does not fit makes `struct`, `len` or `encode` fail, and only then is the
message searched for the field at fault. The bytes gather in one bytearray; a value of `records` closes it and becomes a
part of its own, so that it can leave the process without having been copied, or even looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from barnabas.wire.codegen import Writer
from barnabas.wire.faults import first_fault
from barnabas.wire.primitives import MAX_STRING_BYTES, EncodeError, encode_uvarint, tagged
from barnabas.wire.schema import Field, Kind, bytes_, records, string, uuid


class EncodeWriter(Writer):
    direction = "encode"
    library: ClassVar[dict[str, Any]] = {
        "EncodeError": EncodeError,
        "StructError": struct.error,
        "encode_uvarint": encode_uvarint,
        "first_fault": first_fault,
        "pack": struct.pack,
        "tagged": tagged,
    }
    out = "out"
    """The local that takes the bytes at hand: those of the message, or those of a tagged field."""

    def body(self) -> None:
        has_records = self.has_records(self.cls)
        with self.block("def encode(message, head=b''):"):
            if has_records:
                self.line("parts = []")
            self.line("out = bytearray(head)")
            with self.block("try:"):
                self.struct(self.cls, "message")
            with self.block("except (StructError, ValueError, TypeError, AttributeError) as error:"):
                fault = f"first_fault(message, {self.named(self.cls)}, {self.version})"
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
            for field in self.plain_fields(cls)
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
        for field in self.plain_fields(cls):
            self.field(field, f"{value}.{field.name}")
        if self.flexible:
            self.tags(cls, value)

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
            with self.block_keeping_run(f"if {size} > {MAX_STRING_BYTES + 1}:"):
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
        with self.block(f"for {item} in {items}:"), self.inside():
            if isinstance(of, type):
                self.struct(of, item)
            else:
                self.primitive(of, item, nullable=False)

    def nested(self, of: type, value: str, nullable: bool, tagged: bool) -> None:
        item = self.local("item")
        self.line(f"{item} = {value}")
        if not nullable:
            with self.inside():
                self.struct(of, item)
            return
        self.flush()
        with self.block(f"if {item} is None:"):
            self.fixed("b", "0" if tagged else "-1")  # the one place where Kafka marks null in another way
        with self.block("else:"):
            self.fixed("b", "1")
            with self.inside():
                self.struct(of, item)

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
                with self.inside():
                    self.field(field, f"{value}.{field.name}")
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
            inside = " or ".join(self.differs(inner, f"{value}.{inner.name}") for inner in self.fields(field.of))
            return f"{value} is None or {inside}" if field.nullable.has(self.version) else inside
        return f"{value} != {field.default!r}"
