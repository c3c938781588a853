"""Avro values as Arrow columns: what `avro_codec` is sure of, and which values it leaves to a slower decoder."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.records import engine
from barnabas.records.avro_plans import record_step
from barnabas.records.value_columns import DecodedValues, UnsupportedType, record_batch, sink_of, values_of

if TYPE_CHECKING:
    import pyarrow

FindWriter: TypeAlias = Callable[[int], Any]
"""The schema of a number, as `avro_plans` takes it; None if there is none."""


_NONSENSE = (LookupError, TypeError, AttributeError, ArithmeticError)
"""Errors of a schema from a registry that was never checked: a size that is a text, an enum without symbols."""


class AvroColumnReader:
    """Decodes batch after batch of values into the columns of an Arrow schema, which has the reader's fields.

    Values are framed by the number of the writer's schema, or are bare data. Without `find_writer` every writer has
    used the reader's schema. The values of a writer whose schema is not covered are all unsure. A column named in
    `required` is never null.
    """

    def __init__(
        self,
        schema: pyarrow.Schema,
        reader: Any,
        required: Collection[str] = (),
        *,
        is_framed: bool,
        find_writer: FindWriter | None = None,
    ) -> None:
        codec = engine.avro_codec
        self._schema, self._reader = schema, reader
        self._codec = codec
        self._sinks = tuple(sink_of(codec, field, is_required=field.name in required) for field in schema)
        self._root = codec.ValueSink("struct", b"", self._sinks)
        self._find_writer = find_writer
        looks_up = is_framed and find_writer is not None
        step, find = (None, self._find) if looks_up else (self._step(reader), None)
        self._decoder = codec.AvroDecoder(self._root, is_framed, not required, step, find)

    def read(self, values: pyarrow.Array) -> DecodedValues:
        """Decode an array of bytes; an error of `find_writer` is raised."""
        try:
            unsure = self._decoder.decode(*values_of(values))
            return DecodedValues(record_batch(self._schema, self._sinks, len(values) - len(unsure)), unsure)
        finally:
            self._root.begin()

    def _find(self, number: int) -> Any:
        assert self._find_writer is not None
        writer = self._find_writer(number)
        return None if writer is None else self._step(writer)

    def _step(self, writer: Any) -> Any:
        """None: the pair of schemas is not covered, or the writer's makes no sense."""
        try:
            return record_step(self._codec, writer, self._reader, self._root)
        except (UnsupportedType, *_NONSENSE):
            return None
