"""Topics written on the direct path: the records of the Spark path, in their order, each once whatever dies."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

from barnabas import KafkaError
from barnabas.client.admin.transactions import Transactions, TransactionState
from barnabas.spark import two_phases
from barnabas.spark.decisions import Decisions
from barnabas.spark.direct import task as direct_task
from barnabas.spark.direct.task import Load
from barnabas.spark.pipeline import topic_sink, topic_tasks
from barnabas.spark.pipeline.errors import PipelineError, SinkError
from barnabas.spark.pipeline.failures import UnreadableRecord
from barnabas.spark.pipeline.paths import SinkFeed
from barnabas.sync import Admin, Producer
from tests.peers import Broker
from tests.spark.pipelines import Bench, Collected
from tests.spark.written_topics import consumed, task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
name: ${NAME}
cluster: {bootstrap_servers: "${BARNABAS_BOOTSTRAP_SERVER}", options: {max.partition.fetch.bytes: "1000"}}
max_records_per_task: ${TASK:-100}
sources:
  - name: texts
    topics: ["${TOPIC}"]
    schema: "key STRING, text STRING, part INT"
transforms:
  - {name: records, arrow: tests.spark.arrow_functions.as_records, from: texts}
sinks:
  - name: out
    kind: topic
    from: ${VIEW:-records}
    topic: ${INTO}
    format: ${FORMAT:-columns}
    create: true
    partitions: 3
"""
BY_SPARK = PIPELINE.replace('part INT"', 'part INT"\n    options: {allowComments: "false"}')
"""With options that change nothing, but belong to Spark's reader."""
AS_IS = """
name: ${NAME}
cluster: {bootstrap_servers: "${BARNABAS_BOOTSTRAP_SERVER}"}
sources: [{name: records, topics: ["${TOPIC}"], format: "${FORMAT}", key: key}]
sinks: [{name: out, kind: topic, from: records, topic: "${INTO}", format: columns, create: true}]
"""
PARTITIONS = 3


class Died(BaseException):
    """The driver is gone."""


class Feeds(Collected):
    """Keeps how sinks get their rows, too."""

    def feeds(self, feeds: Sequence[SinkFeed]) -> None:
        self.seen = list(feeds)


@pytest.fixture
def bench(spark: SparkSession, spark_broker: Broker, tmp_path: Path) -> Bench:
    return Bench(spark, spark_broker.address, tmp_path)


@pytest.fixture
def direct_loads(monkeypatch: pytest.MonkeyPatch) -> list[Load]:
    """The loads that tasks of the direct path were given, to write somewhere."""
    seen: list[Load] = []

    def in_tasks(load: Load) -> Any:
        if load.target is not None:
            seen.append(load)
        return direct_task.in_tasks(load)

    monkeypatch.setattr("barnabas.spark.direct.job.in_tasks", in_tasks)
    return seen


def text(number: int, random: Random | None = None) -> bytes:
    """Tasks are sure of most; numbers are for Spark. Rows without a key have a partition: others have no order."""
    row: dict[str, Any] = {"key": f"k{number % 7}", "text": f"é {number}", "part": number % PARTITIONS}
    if random is not None:
        row["part"] = random.choice([None, random.randrange(PARTITIONS)])
        row["key"] = random.choice([*([] if row["part"] is None else [None]), "", "é" * random.randrange(9)])
        row["text"] = random.choice([None, "", "x" * random.randrange(300), number])
    return json.dumps(row).encode()


def records(address: str, topic: str, count: int) -> dict[str, list[tuple[int, bytes | None, bytes | None]]]:
    """By partition of the source, what librdkafka finds committed: offset in the source, key and value, each in the
    order of the target's partitions."""
    found = defaultdict(list)
    for message in sorted(consumed(address, topic, count), key=lambda each: (each.partition(), each.offset())):
        [(name, where)] = message.headers() or []
        assert name == "at"
        partition, _, offset = where.decode().partition("/")
        found[f"{partition} in {message.partition()}"].append((int(offset), message.key(), message.value()))
    return found


def offsets(address: str, topic: str, count: int) -> list[int]:
    return sorted(offset for some in records(address, topic, count).values() for offset, _, _ in some)


def open_ids(address: str, name: str) -> list[str]:
    with Admin(address) as admin:
        found = admin.transactions.list(states=[TransactionState.ONGOING])
    return [each.transactional_id for each in found if each.transactional_id.startswith(f"barnabas-pipeline/{name}/")]


def test_records_are_those_of_the_spark_path_and_in_order(
    bench: Bench, spark_topic: Callable[..., str], direct_loads: list[Load]
) -> None:
    topic, random = spark_topic(partitions=2), Random(1)
    values = [text(number, random if number % 20 == 13 else None) for number in range(700)]
    bench.send(topic, [*values, *(text(number, random) for number in range(200))])
    found = {}
    for name, pipeline in (("direct", PIPELINE), ("spark", BY_SPARK)):
        into = f"{topic}-{name}"
        assert bench.run(pipeline, TOPIC=topic, NAME=into, INTO=into, TASK=1000).rows == {"out": 900}
        assert len(direct_loads) == 1
        found[name] = records(bench.address, into, 900)
    in_any_order = [sorted((row for some in each.values() for row in some), key=repr) for each in found.values()]
    assert in_any_order[0] == in_any_order[1]
    assert len(in_any_order[0]) == 900
    for each in found.values():
        assert all([row[0] for row in some] == sorted(row[0] for row in some) for some in each.values())


@pytest.mark.parametrize("values", ["bytes", "text"])
def test_a_topic_is_copied_as_it_is(
    bench: Bench, spark_topic: Callable[..., str], direct_loads: list[Load], values: str
) -> None:
    """Keys that are no text, too."""
    topic = spark_topic()
    sent = [(random_bytes, b"" if values == "text" else random_bytes) for random_bytes in (b"", b"\xff\0", b"a")]
    with Producer(bench.address) as producer:
        for key, value in [*sent, (None, None)]:
            producer.post(topic, value, key=key)
    bench.run(AS_IS, TOPIC=topic, NAME=topic, INTO=f"{topic}-copy", FORMAT=values)
    assert len(direct_loads) == 1
    copied = [(message.key(), message.value()) for message in consumed(bench.address, f"{topic}-copy", 4)]
    assert copied == [*sent, (None, None)]


def test_values_as_json_are_made_by_spark_and_the_plan_says_so(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic, reporter = spark_topic(), Feeds()
    bench.send(topic, [text(1)])
    bench.run(PIPELINE, reporter, TOPIC=topic, NAME=topic, INTO=f"{topic}-out", FORMAT="json", VIEW="texts")
    assert [(each.path.value, each.reason) for each in reporter.seen] == [
        ("spark", "its values are JSON, which Spark's to_json makes")
    ]
    [message] = consumed(bench.address, f"{topic}-out", 1)
    assert message.value() == '{"key":"k1","text":"é 1","part":1}'.encode()


def test_rows_without_a_value_are_refused_before_anything_is_read(
    bench: Bench, spark_topic: Callable[..., str], direct_loads: list[Load]
) -> None:
    topic = spark_topic()
    bench.send(topic, [text(1)])
    with pytest.raises(SinkError, match=r"^sink 'out': there is no column 'value', but 'key', 'text', "):
        bench.run(PIPELINE, TOPIC=topic, NAME=topic, INTO=f"{topic}-out", VIEW="texts")
    assert not direct_loads


def test_a_bad_record_or_a_wrong_partition_leaves_nothing_behind(
    bench: Bench, spark_topic: Callable[..., str], direct_loads: list[Load]
) -> None:
    """Also of the tasks that have sent all that they had."""
    bad = {b"{": (UnreadableRecord, "record 150 of "), text(1).replace(b"1}", b"7}"): (PipelineError, "partition 7")}
    for value, (kind, message) in bad.items():
        topic = spark_topic()
        bench.send(topic, [*map(text, range(150)), value, *map(text, range(150))])
        with pytest.raises(kind, match=message):
            bench.run(PIPELINE, TOPIC=topic, NAME=topic, INTO=f"{topic}-out")
        assert consumed(bench.address, f"{topic}-out", 0) == []
        assert open_ids(bench.address, topic) == []
    assert len(direct_loads) == 2


def dies(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, part: str) -> None:
    """The next call of a method, or a part of it, is the last thing that the driver does."""
    real = getattr(owner, name)

    async def last(self: Any, given: Any, *args: Any, **options: Any) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(topic_sink, "abort", nothing)
        if part == "all":
            await real(self, given, *args, **options)
        elif part == "half":
            await real(self, given[:1], *args, **options)
        raise Died

    async def nothing(*_: Any) -> None:
        """The driver is dead."""

    monkeypatch.setattr(owner, name, last)


@pytest.mark.parametrize(
    ("owner", "name", "part"),
    [
        pytest.param(Decisions, "write", "none", id="before the decision"),
        pytest.param(Decisions, "write", "all", id="after the decision"),
        pytest.param(Transactions, "end_many", "half", id="after half of the ends"),
        pytest.param(two_phases, "_abort_strays", "all", id="after everything"),
    ],
)
def test_every_record_is_there_once_after_a_driver_has_died(
    bench: Bench, spark_topic: Callable[..., str], owner: Any, name: str, part: str
) -> None:
    """Records that tasks have decoded and those that Spark has: all or none."""
    topic = spark_topic()
    bench.send(topic, [*map(text, range(150)), b'{"text": 1}', *map(text, range(149))])
    with pytest.MonkeyPatch.context() as patch:
        dies(patch, owner, name, part)
        with pytest.raises(Died):
            bench.run(PIPELINE, TOPIC=topic, NAME=topic, INTO=f"{topic}-out")
    expected = 0 if part == "none" else 300
    bench.send(topic, [text(1)] * 50)
    if not expected:
        assert len(open_ids(bench.address, topic)) == 4
        assert consumed(bench.address, f"{topic}-out", 0) == []
    assert bench.run(PIPELINE, TOPIC=topic, NAME=topic, INTO=f"{topic}-out").rows == {"out": 350 - expected}
    assert offsets(bench.address, f"{topic}-out", 350) == list(range(350))
    assert open_ids(bench.address, topic) == []


def test_rows_that_spark_decodes_fail_together_with_those_of_the_tasks(
    bench: Bench, spark_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = spark_topic()
    bench.send(topic, [text(1), b'{"text": 1, "part": 0}', text(2)])
    send, seen = topic_tasks.send, list[int]()

    def fails(*args: Any) -> Any:
        seen.append(sum(each.rows for each in send(*args)))
        raise ZeroDivisionError

    monkeypatch.setattr(topic_tasks, "send", fails)
    with pytest.raises(ZeroDivisionError):
        bench.run(PIPELINE, TOPIC=topic, NAME=topic, INTO=f"{topic}-out")
    assert seen == [2]
    assert consumed(bench.address, f"{topic}-out", 0) == []
    assert open_ids(bench.address, topic) == []
    monkeypatch.undo()
    bench.run(PIPELINE, TOPIC=topic, NAME=topic, INTO=f"{topic}-out")
    assert offsets(bench.address, f"{topic}-out", 3) == [0, 1, 2]


def test_a_killed_attempt_and_one_that_comes_late_send_nothing_that_counts(
    bench: Bench, spark_topic: Callable[..., str], direct_loads: list[Load], tmp_path: Path
) -> None:
    topic = spark_topic()
    for number in range(4):  # a fetch for each: the attempt has sent some when it dies
        bench.send(topic, [text(1)] * 20)
        if number == 2:
            bench.send(topic, [json.dumps({"text": str(tmp_path / "killed")}).encode()])
    bench.run(PIPELINE, TOPIC=topic, NAME=topic, INTO=f"{topic}-out")
    assert (tmp_path / "killed").exists()
    assert offsets(bench.address, f"{topic}-out", 81) == list(range(81))
    [load] = direct_loads
    assert load.target is not None
    row = pyarrow.RecordBatch.from_pylist([{"value": "late"}], schema=load.target.schema)
    with task(attempt=7):
        list(load.run(0, attempt=7))
        late = ExitStack()
        writer = late.enter_context(load.target.open(load.pieces[0], 8))
        writer.add(row)
        bench.send(topic, [text(1)] * 10)
        bench.run(PIPELINE, TOPIC=topic, NAME=topic, INTO=f"{topic}-out")
        writer.add(row)
        with pytest.raises(KafkaError):
            late.close()
    assert offsets(bench.address, f"{topic}-out", 91) == list(range(91))
    assert open_ids(bench.address, topic) == []
