"""Why a record cannot be read, what a replay sends, one run at a time, and what is told of errors."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from fastavro import parse_schema, schemaless_writer

from barnabas.client.consume.consumed import ConsumerRecord
from barnabas.client.metadata import TopicPartition
from barnabas.spark.data_loss import Cause, DataLost, Loss
from barnabas.spark.decisions import Work
from barnabas.spark.pipeline.avro import AvroReader, load_schema, spark_type
from barnabas.spark.pipeline.definition import Format, Framing, Source
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.explain import Column, Expectation, explain
from barnabas.spark.pipeline.failures import brief, in_words_of_pipelines, unreadable_in
from barnabas.spark.pipeline.lock import AlreadyRunning, is_locked, run_lock
from barnabas.spark.pipeline.replay import own_letters
from barnabas.spark.pipeline.sinks import SinkContext
from barnabas.spark.pipeline.stopping import stop_on_signals
from barnabas.spark.pipeline.topic_sink import TopicSettings, TopicSink
from barnabas.spark.two_phases import DecidedLost

COLUMNS = [Column("id", "int", True), Column("x", "double", False), Column("at", "timestamp", False)]


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"{", "JSONDecodeError: Expecting property name"),
        (b"\xff", "UnicodeDecodeError"),
        (b"[1]", "the value is [1], not an object with columns"),
        (b'{"x": 1}', "column 'id' is missing, and the schema says NOT NULL"),
        (b'{"id": null}', "column 'id' is null, and the schema says NOT NULL"),
        (b'{"id": "a"}', "column 'id' is \"a\", not int"),
        (b'{"id": true}', "column 'id' is true, not int"),
        (b'{"id": 3000000000}', "column 'id' is 3000000000, not int"),
        (b'{"id": 1, "x": [1]}', "column 'x' is [1], not double"),
        (b'{"id": 1, "at": "soon"}', "column 'at' is \"soon\", not timestamp"),
        (b'{"id": 1}', "Spark cannot read it as json"),
        (None, "column 'id' is null"),
    ],
)
def test_what_is_wrong_with_json_is_said_in_one_sentence(value: bytes | None, cause: str) -> None:
    told, stack = explain(Expectation(Format.JSON, COLUMNS), value)
    assert cause in told
    assert "Traceback" in stack


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"1;2", "the line has 2 cells, and the schema 3 columns"),
        (b"a;2;", "column 'id' is \"a\", not int"),
        (b"1;b;", "column 'x' is \"b\", not double"),
        (b";2;", "column 'id' is null"),
        ("1;2;\uffff".encode(), "the line has U+FFFF"),
    ],
)
def test_what_is_wrong_with_csv_is_said_in_one_sentence(value: bytes, cause: str) -> None:
    assert cause in explain(Expectation(Format.CSV, COLUMNS, ";"), value)[0]


SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    ],
}


def avro(schema: dict[str, Any], row: dict[str, Any], number: int | None) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), row)
    framing = b"" if number is None else b"\0" + number.to_bytes(4, "big")
    return framing + out.getvalue()


SMALL = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
WIDER = {**SMALL, "fields": [*SMALL["fields"], {"name": "note", "type": "string", "default": "none"}]}


def test_an_avro_schema_becomes_columns() -> None:
    kinds = spark_type(load_schema(Source("s", ("t",), format=Format.AVRO, schema=json.dumps(SCHEMA))))
    assert kinds.simpleString() == (
        "struct<id:bigint,note:string,price:decimal(9,2),at:timestamp,tags:array<string>,sizes:map<string,int>,state:string>"
    )
    assert [each.name for each in kinds if each.nullable] == ["note"]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "not an Avro schema"),
        ('{"type": "string"}', "is not a record"),
        ("/nowhere.avsc", "cannot read the Avro schema /nowhere.avsc"),
    ],
)
def test_a_wrong_avro_schema_is_told_with_its_source(schema: str, problem: str) -> None:
    with pytest.raises(PipelineError, match=f"source 's': .*{problem}"):
        load_schema(Source("s", ("t",), format=Format.AVRO, schema=schema))


def test_a_framed_value_is_read_with_the_schema_of_its_writer(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(SMALL))
    reader = AvroReader(dict(parse_schema(WIDER)), Framing.CONFLUENT, str(tmp_path))  # type: ignore[arg-type]
    assert reader.read(avro(SMALL, {"id": 5}, 7)) == {"id": 5, "note": "none"}
    with pytest.raises(ValueError, match="has no schema with the id 8"):
        reader.read(avro(SMALL, {"id": 5}, 8))


@contextmanager
def registry(answers: dict[str, tuple[int, dict[str, Any]]]) -> Iterator[str]:
    """A schema registry on the loopback that knows these paths; the address."""

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = answers.get(self.path, (404, {"error_code": 40403, "message": "Schema not found"}))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_registry_is_asked_by_http_once_for_each_schema() -> None:
    answers = {"/schemas/ids/7": (200, {"schema": json.dumps(SMALL)}), "/schemas/ids/9": (500, {"message": "broken"})}
    with registry(answers) as address:
        reader = AvroReader(dict(parse_schema(WIDER)), Framing.CONFLUENT, f"{address}/")  # type: ignore[arg-type]
        assert reader.read(avro(SMALL, {"id": 5}, 7)) == {"id": 5, "note": "none"}
        with pytest.raises(ValueError, match=f"the registry {address}/ has no schema with the id 8"):
            reader.read(avro(SMALL, {"id": 5}, 8))
        with pytest.raises(HTTPError, match="500"):
            reader.read(avro(SMALL, {"id": 5}, 9))
    assert reader.read(avro(SMALL, {"id": 6}, 7)) == {"id": 6, "note": "none"}
    with pytest.raises(OSError, match="refused"):  # which stops the run: the record may be right
        reader.read(avro(SMALL, {"id": 5}, 8))


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"abc", "does not begin with Confluent's framing"),
        (b"\0\0\0\0\1\2\2", "1 bytes are left over"),
        (b"\0\0\0\0\1", "EOF"),
    ],
)
def test_what_is_not_framed_avro_is_refused(value: bytes, cause: str) -> None:
    reader = AvroReader(dict(parse_schema(SMALL)), Framing.CONFLUENT, None)  # type: ignore[arg-type]
    assert cause in explain(Expectation(Format.AVRO, avro=reader), value)[0]


def letter(**headers: str) -> ConsumerRecord:
    told = tuple((name.replace("_", "."), value.encode()) for name, value in headers.items())
    return ConsumerRecord("dead", 0, 9, 1, b"key", b"value", (("trace", b"1"), *told))


PLACE = {"barnabas_dead_topic": "orders", "barnabas_dead_partition": "2", "barnabas_dead_offset": "40"}


def test_a_replayed_record_goes_back_as_it_came() -> None:
    (found,) = own_letters([letter(barnabas_dead_pipeline="shop", barnabas_dead_cause="bad", **PLACE)], "shop")
    assert (found.topic, found.partition, found.offset, found.cause) == ("orders", 2, 40, "bad")
    assert (found.record.value, found.record.key, found.record.partition) == (b"value", b"key", 2)
    assert found.record.headers == [("trace", b"1"), ("barnabas.replays", b"1")]
    again = letter(barnabas_dead_pipeline="shop", barnabas_replays="1", **PLACE)
    assert own_letters([again], "shop")[0].record.headers[-1] == ("barnabas.replays", b"2")


def test_letters_of_other_pipelines_stay_where_they_are() -> None:
    assert own_letters([letter(barnabas_dead_pipeline="other", **PLACE), letter()], "shop") == []


def test_a_second_run_is_refused_and_told_who_has_the_first(tmp_path: Path) -> None:
    file = tmp_path / "state" / "lock"
    assert not is_locked(file)
    with run_lock(file, "shop"):
        assert is_locked(file)
        refused = rf"pipeline 'shop' is run already, by process {os.getpid()} on"
        with pytest.raises(AlreadyRunning, match=refused), run_lock(file, "shop"):
            pass
    assert not is_locked(file)
    with run_lock(file, "shop"):
        pass


def test_a_signal_asks_for_a_stop_and_a_second_one_stops_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    told: list[str] = []
    with stop_on_signals(told.append) as stop:
        assert not stop.is_set
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(10)
        assert told == ["stopping after this batch; once more to stop at once"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_asks_for_a_stop_though_spark_has_set_a_handler_of_its_own() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals(lambda text: None) as stop:
        signal.signal(signal.SIGINT, lambda number, frame: pytest.fail("Spark's handler"))
        stop.listen()
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_inside_a_task_is_told_by_its_last_line() -> None:
    stack = (
        "Job aborted\nTraceback (most recent call last):\n  File x\nbarnabas.core.errors.KafkaError: the disk is full\n"
    )
    assert brief(RuntimeError(stack)) == "KafkaError: the disk is full"
    assert brief(RuntimeError("[TABLE] not there\n at java")) == "[TABLE] not there"
    assert unreadable_in(RuntimeError("[X] unreadable record my.topic 3 77 SQLSTATE")) == ("my.topic", 3, 77)
    assert unreadable_in(RuntimeError("other")) is None


def test_an_error_of_the_data_source_says_what_a_pipelines_owner_can_do() -> None:
    lost = DataLost([Loss(TopicPartition("orders", 0), Cause.RETENTION, 3, 9)])
    told = brief(
        RuntimeError(f"Traceback (most recent call last):\n  File x\nbarnabas.spark.data_loss.DataLost: {lost}")
    )
    assert told.startswith("DataLost: orders-0: offsets 3 to 8 were removed before they were read")
    assert told.endswith("; give the source `data_loss: skip` to warn of it and to go on with what is there")
    told = in_words_of_pipelines(str(DecidedLost(Work("w"), ["t-0"])))
    assert "give the sink another name and another topic" in told
    assert "transactionalIdPrefix" not in told


def test_no_two_sinks_of_pipelines_share_a_transactional_id() -> None:
    names = [("shop", "orders-out"), ("shop-orders", "out"), ("shop", "orders/out")]
    sinks = [TopicSink(TopicSettings("t"), SinkContext(*pair, {"kafka.bootstrap.servers": "b:1"})) for pair in names]
    assert len({sink.options["transactionalIdPrefix"] for sink in sinks}) == len(names)
