"""From records to rows: what the value of a record means, and which records cannot be read.

Decoding is done by Spark's own functions where it has them (JSON, CSV, text), and by fastavro otherwise. Where tasks
have decoded values before (`spark.decoding`), only what they were unsure of is decoded here. Each format gives one
struct with the columns of the schema, and says whether it could read the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.decoded_rows import PARSED
from barnabas.spark.pipeline.avro import AvroReader, load_schema, spark_type
from barnabas.spark.pipeline.definition import Format, Source
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.explain import Column as ExpectedColumn
from barnabas.spark.pipeline.explain import Expectation
from barnabas.spark.pipeline.sinks import OFFSET, ORIGIN_COLUMNS, PARTITION, TIMESTAMP, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

UNREADABLE = "unreadable record "
"""Begins the error of a record that stops the run; topic, partition and offset follow, divided by blanks."""

_PARSED, _CORRUPT, _IS_GOOD = "_parsed", "_corrupt", "_is_good"
_ENTRIES, _END = "entries", "end"
"""Of what JSON is wrapped in."""
_END_OF_LINE = "\uffff"
"""To `from_csv`, which takes one line."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """Turns the raw records of a source into rows."""

    source: Source
    schema: StructType
    avro: AvroReader | None

    @property
    def columns(self) -> list[str]:
        """Of the raw records: what has to be read of them."""
        keys = ["key"] if self.source.key is not None else []
        return [*keys, "value", "topic", "partition", "offset", "timestamp"]

    @property
    def expectation(self) -> Expectation:
        columns = [ExpectedColumn(each.name, each.dataType.simpleString(), not each.nullable) for each in self.schema]
        return Expectation(self.source.format, columns, self.source.options.get("sep", ","), self.avro)

    def decode(self, records: DataFrame, *, stop_at_bad: bool) -> DataFrame:
        """The rows of the records that can be read; the first one that cannot is an error, or is left out."""
        from pyspark.sql import functions as f

        parsed = self._parse(records)
        where = f.concat_ws(" ", f.lit(UNREADABLE.strip()), f.col("topic"), f.col("partition"), f.col("offset"))
        stop = f.raise_error(where).cast("boolean")
        good = parsed.where(f.when(f.col(_IS_GOOD), f.lit(True)).otherwise(stop) if stop_at_bad else f.col(_IS_GOOD))
        key = [] if self.source.key is None else [f.col("key").cast("string").alias(self.source.key)]
        fields = [f.col(_PARSED)[name].alias(name) for name in self.schema.names]
        rows = good.select(*key, *fields, *_origin())
        return self._newest(rows, good, key, fields) if self.source.is_table else rows

    def bad(self, records: DataFrame) -> DataFrame:
        """The records that cannot be read, as they are."""
        from pyspark.sql import functions as f

        return self._parse(records).where(~f.col(_IS_GOOD)).select(*records.columns)

    def _newest(self, rows: DataFrame, good: DataFrame, key: list[Column], fields: list[Column]) -> DataFrame:
        """Of each key its newest row; one whose value is null has been deleted."""
        from pyspark.sql import functions as f

        names = rows.columns
        marked = good.select(*key, *fields, *_origin(), f.col("value").isNull().alias("_is_deleted"))
        newest = marked.groupBy(*self.source.newest_by).agg(
            f.max_by(f.struct(*marked.columns), f.struct(OFFSET, PARTITION)).alias("_newest")
        )
        return newest.where(~f.col("_newest._is_deleted")).select(
            *(f.col("_newest")[name].alias(name) for name in names)
        )

    def _parse(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        if PARSED in records.columns and self.source.format is Format.AVRO:  # by tasks, which have fastavro too
            parsed = records.withColumn(_PARSED, f.col(PARSED))
        else:
            parsed = self._parse_values(records)
        is_read = f.col(_PARSED).isNotNull()
        if self.source.format is Format.CSV:
            is_read &= f.col(_PARSED)[_CORRUPT].isNull()
        is_null = f.col("value").isNull()
        is_good = is_null | is_read
        for each in self.schema:
            if not each.nullable:
                is_there = f.col(_PARSED)[each.name].isNotNull()
                is_good &= is_there | is_null if self.source.is_table else is_there  # in a table, null deletes
        return parsed.withColumn(_IS_GOOD, f.coalesce(is_good, f.lit(False)))

    def _parse_values(self, records: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        by_spark, is_json = _PARSERS[self.source.format](self), self.source.format is Format.JSON
        if PARSED in records.columns:  # by tasks, but for values that they were unsure of
            by_task = f.col(PARSED)
            if is_json:
                # Named once, in one expression: so Spark evaluates it for those values only, and repeats it nowhere.
                by_spark = f.transform(f.array(by_spark), _unwrapped)[0]
            elif self.source.format is Format.CSV:
                by_task = by_task.withField(_CORRUPT, f.lit(None).cast("string"))
            return records.withColumn(_PARSED, f.coalesce(by_task, by_spark))
        # From a generator, so that a value is parsed once: Spark repeats the expression of a column in filters of it.
        parsed = records.select("*", f.explode(f.array(by_spark)).alias(_PARSED))
        return parsed.withColumn(_PARSED, _unwrapped(f.col(_PARSED))) if is_json else parsed


def make_decoder(source: Source) -> Decoder:
    """Needs a Spark session, which knows the language of schemas."""
    if source.format is Format.AVRO:
        schema = load_schema(source)
        return Decoder(
            source, _checked(source, spark_type(schema)), AvroReader(schema, source.framing, source.registry)
        )
    return Decoder(source, _checked(source, _ddl_schema(source)), None)


def _ddl_schema(source: Source) -> StructType:
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    ddl = source.schema or f"value {'BINARY' if source.format is Format.BYTES else 'STRING'}"
    try:
        schema = StructType.fromDDL(ddl)
    except ParseException as error:
        first = str(error).strip().splitlines()[0]
        raise PipelineError(f"source {source.name!r}: its schema is not in Spark's language: {first}") from None
    assert isinstance(schema, StructType)
    return schema


def _checked(source: Source, schema: StructType) -> StructType:
    names = [*schema.names, *([] if source.key is None else [source.key])]
    for name in names:
        if name in (*ORIGIN_COLUMNS, _CORRUPT) or names.count(name) > 1:
            raise PipelineError(f"source {source.name!r}: column {name!r} is there twice, or stands for something else")
    for wanted in source.newest_by:
        if wanted not in names:
            raise PipelineError(f"source {source.name!r}: newest_by names {wanted!r}, which is no column of it")
    return schema


def _origin() -> list[Column]:
    from pyspark.sql import functions as f

    names = zip(("topic", "partition", "offset", "timestamp"), (TOPIC, PARTITION, OFFSET, TIMESTAMP))
    return [f.col(name).alias(alias) for name, alias in names]


def _text() -> Column:
    """The value, where it is UTF-8: Spark would read on with marks in place of what is not."""
    from pyspark.sql import functions as f

    return f.when(f.is_valid_utf8("value"), f.col("value").cast("string"))


def _spark_options(source: Source) -> dict[str, str]:
    return {**source.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def _nullable(schema: StructType) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, each.dataType) for each in schema])


def _json(decoder: Decoder) -> Column:
    """The value as the one entry of a list, with something behind that: Spark stops reading where an object ends, and
    would take `{"id": 1} junk` for a good one."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, BooleanType, StringType, StructType

    wrapper = StructType().add(_ENTRIES, ArrayType(_nullable(decoder.schema)))
    wrapper = wrapper.add(_END, BooleanType()).add(_CORRUPT, StringType())
    text = f.concat(f.lit(f'{{"{_ENTRIES}": ['), _text(), f.lit(f'\n], "{_END}": true}}'))
    return f.from_json(text, wrapper, _spark_options(decoder.source))


def _unwrapped(wrapper: Column) -> Column:
    from pyspark.sql import functions as f

    is_whole = wrapper[_CORRUPT].isNull() & wrapper[_END] & (f.size(wrapper[_ENTRIES]) == 1)
    return f.when(is_whole, wrapper[_ENTRIES][0])


def _csv(decoder: Decoder) -> Column:
    """Where a value has U+FFFF, which ends a line for `from_csv`, Spark would read on there for the next record."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    schema = _nullable(decoder.schema).add(_CORRUPT, StringType())
    ddl = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in schema)
    text = f.when(~_text().contains(_END_OF_LINE), _text())
    return f.from_csv(text, ddl, _spark_options(decoder.source))


def _one_text(decoder: Decoder) -> Column:
    from pyspark.sql import functions as f

    return f.when(f.is_valid_utf8("value"), f.struct(_text().alias("value")))


def _one_binary(decoder: Decoder) -> Column:
    from pyspark.sql import functions as f

    return f.struct(f.col("value"))


def _avro(decoder: Decoder) -> Column:
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import to_arrow_type

    kind = to_arrow_type(decoder.schema, timezone="UTC")
    reader = decoder.avro
    assert reader is not None

    def decode(values: pa.Array) -> pa.Array:
        return reader.read_column(values, kind)

    decode.__annotations__ = {"values": pa.Array, "return": pa.Array}  # Spark goes by them, and not if they are texts
    column: Column = arrow_udf(decode, decoder.schema)("value")  # type: ignore[call-overload]
    return column


_PARSERS: Mapping[Format, Callable[[Decoder], Column]] = {
    Format.JSON: _json,
    Format.CSV: _csv,
    Format.TEXT: _one_text,
    Format.BYTES: _one_binary,
    Format.AVRO: _avro,
}
