"""Avro values in tasks: the oracle is fastavro, which decoded every value before there was a compiled decoder."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest
from fastavro import parse_schema
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.records import avro_codec, engine
from barnabas.records.avro_columns import AvroColumnReader
from barnabas.records.value_columns import DecodedValues
from barnabas.spark.decoding import AvroDecoding, Decoding, value_reader
from barnabas.spark.pipeline.avro import AvroReader, spark_type
from barnabas.spark.pipeline.definition import Framing
from barnabas.spark.pipeline.errors import PipelineError
from tests.avro_values import Data, SchemaPairs

WRITER = 7
FRAME = b"\0\0\0\0\7"
VALUES = 40


def parsed(schema: Any) -> Any:
    return parse_schema(schema)


class Pair:
    """A writer, a reader, and values of which some are broken."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        writer, reader = SchemaPairs(random).pair()
        self.writer, self.reader = parsed(writer), parsed(reader)
        columns = spark_type(self.reader)
        self.required = [column.name for column in columns if not column.nullable]
        self.schema = to_arrow_schema(columns, timezone="UTC")
        data = Data(random, self.writer["__named_schemas"])
        values = [FRAME + data.value(self.writer) for _ in range(VALUES)]
        self.values = pyarrow.array(values, pyarrow.binary())

    def decode(self) -> DecodedValues:
        find: Callable[[int], Any] = {WRITER: self.writer}.get
        reader = AvroColumnReader(self.schema, self.reader, self.required, is_framed=True, find_writer=find)
        found = reader.read(self.values)
        found.rows.validate(full=True)
        return found

    def by_fastavro(self) -> list[Any]:
        """A row for each value, or None for one that cannot be read."""
        reader = AvroReader(self.reader, Framing.CONFLUENT, "known", {WRITER: self.writer})
        return list(reader.read_column(self.values, pyarrow.struct(list(self.schema))).to_pylist())


@pytest.mark.parametrize("seed", range(40))
def test_what_is_sure_is_what_fastavro_reads(seed: int) -> None:
    pair = Pair(seed)
    found, expected = pair.decode(), pair.by_fastavro()
    sure = [row for index, row in enumerate(expected) if index not in found.unsure]
    assert repr(found.rows.to_pylist()) == repr(sure)  # NaN is not equal to itself


def test_most_values_that_fastavro_reads_are_sure() -> None:
    readable = unsure = 0
    for seed in range(40):
        pair = Pair(seed)
        expected = pair.by_fastavro()
        readable += sum(row is not None for row in expected)
        unsure += sum(expected[index] is not None for index in pair.decode().unsure)
    assert readable > 40 * VALUES // 2
    assert unsure < readable / 10


def test_both_engines_agree_on_random_values() -> None:
    for seed in range(40, 80):
        pair = Pair(seed)
        compiled = pair.decode()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "avro_codec", avro_codec)
            plain = pair.decode()
        assert compiled.unsure == plain.unsure
        assert repr(compiled.rows.to_pylist()) == repr(plain.rows.to_pylist())


ROW: dict[str, Any] = {
    "type": "record", "name": "Row",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": None}],
}  # fmt: skip
TREE = {**ROW, "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Row"]}]}


def decoding(schema: dict[str, Any], registry: str | None = None, framing: str = "confluent") -> Decoding:
    columns = spark_type(parsed(schema))
    required = tuple(column.name for column in columns if not column.nullable)
    return Decoding(
        "avro", columns.json(), required, is_utc=True, avro=AvroDecoding(json.dumps(parsed(schema)), framing, registry)
    )


def test_values_of_a_recursive_writer_are_read_by_fastavro_in_order(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_text(json.dumps(ROW))
    (tmp_path / "2.avsc").write_text(json.dumps(TREE))
    row, tree = b"\0\0\0\0\1\2\2\2a", b"\0\0\0\0\2\4\2\6\0"
    values = [tree, row, b"\0\0\0\0\2\4\2", tree, None, row, b"\0\0\0\0\3\2\0", row[:-1]]
    rows, unsure = value_reader(decoding(ROW, str(tmp_path)))(pyarrow.array(values, pyarrow.binary()))
    assert rows.to_pylist() == [{"id": 2, "note": None}, {"id": 1, "note": "a"}] * 2
    assert unsure == [2, 4, 6, 7]


def test_a_value_that_its_column_cannot_take_is_bad_and_no_other_is() -> None:
    too_large = b"\x80\x80\x80\x80\x10\0"
    read = value_reader(decoding(ROW, framing="none"))
    rows, unsure = read(pyarrow.array([b"\2\0", too_large, b"\4\0"], pyarrow.binary()))
    assert ([row["id"] for row in rows.to_pylist()], unsure) == ([1, 2], [1])
    reader = AvroReader(parsed(ROW), Framing.NONE, None)
    structs = reader.read_column(pyarrow.array([b"\2\0", too_large, None]), pyarrow.struct(list(decoding(ROW).schema)))
    assert structs.to_pylist() == [{"id": 1, "note": None}, None, None]


def test_null_is_a_row_where_no_column_is_required() -> None:
    optional = {**ROW, "fields": [{**field, "type": ["null", "int"]} for field in ROW["fields"]]}
    nothing = pyarrow.array([None, b"\0\0\0\0\1\0\0"], pyarrow.binary())
    rows, unsure = value_reader(decoding(optional))(nothing)
    assert (rows.to_pylist(), unsure) == ([{"id": None, "note": None}] * 2, [])
    assert value_reader(decoding(ROW))(nothing)[1] == [0]


def test_a_registry_that_does_not_answer_stops_the_task() -> None:
    read = value_reader(decoding(ROW, "http://127.0.0.1:9"))  # the discard port, where nothing listens
    with pytest.raises(OSError, match="refused"):
        read(pyarrow.array([b"\0\0\0\0\1\2\0"], pyarrow.binary()))


def test_something_else_than_a_schema_in_the_registry_makes_records_bad(tmp_path: Path) -> None:
    for number, text in enumerate(("{", '{"type": "record"}', '{"type": "enum", "name": "E", "symbols": 5}')):
        (tmp_path / f"{number}.avsc").write_text(text)
    values = pyarrow.array([b"\0\0\0\0%c\2\0" % number for number in range(4)], pyarrow.binary())
    assert value_reader(decoding(ROW, str(tmp_path)))(values)[1] == [0, 1, 2, 3]


def test_an_avro_decoding_travels_as_text_and_by_pickle() -> None:
    sent = decoding(ROW, "/registry")
    assert Decoding.load(sent.dump()) == sent == pickle.loads(pickle.dumps(sent))


def test_a_named_type_can_be_used_again_but_not_in_itself() -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    fields = [{"name": "a", "type": point}, {"name": "b", "type": ["null", "Point"]}]
    columns = spark_type(parsed({**ROW, "fields": fields}))
    assert columns.simpleString() == "struct<a:struct<x:int>,b:struct<x:int>>"
    with pytest.raises(PipelineError, match="Row, which contains itself"):
        spark_type(parsed(TREE))
