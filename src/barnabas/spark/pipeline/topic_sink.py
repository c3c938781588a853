"""The sink `topic`: rows become records of a topic, each exactly once for whoever reads what is committed.

    kind: topic
    topic: totals
    key: customer            # a column; without it records have no key
    format: json             # the value: all columns as one JSON object; `columns`: the rows have key, value, ...
    create: true

It stands on the atomic writes of the data source: tasks leave their transactions open (`topic_tasks`), one decision in
the control topic makes all of them count (`spark.two_phases`), and a write that was decided is never done again. That
decision carries the name of the write, so the sink puts the offsets into the name: rows and offsets are decided by one
record, whatever cut the rows into tasks, and the last decision shows how far the sink is. The other way, to send the
source's offsets inside the producer's transaction, is exact only as long as one producer writes a whole batch: all rows
would have to go through the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.admin.topics import Topics
from barnabas.core.errors import KafkaError
from barnabas.spark.cluster import open_client, persevere, run
from barnabas.spark.decisions import Decision, Work, look_up
from barnabas.spark.direct.rows import DirectRows
from barnabas.spark.kafka_options import BOOTSTRAP, PREFIX
from barnabas.spark.pipeline.errors import SinkError
from barnabas.spark.pipeline.failures import in_words_of_pipelines
from barnabas.spark.pipeline.place import Place
from barnabas.spark.pipeline.sinks import NOTHING, ORIGIN_COLUMNS, Batch, Offsets, SinkContext, SinkKind, Written
from barnabas.spark.row_batches import WrongColumns, check_columns
from barnabas.spark.two_phases import abort, commit, recover
from barnabas.spark.write_options import PRODUCER, WriteOptions, parse_batch_write_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")


class ValueFormat(StrEnum):
    JSON = "json"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a pipeline's file says about the sink."""

    topic: str
    key: str | None = None
    """A column: of bytes as it is, of another type as text."""
    format: ValueFormat = ValueFormat.JSON
    create: bool = False
    """Whether a topic that is not there is made."""
    partitions: int = 1
    """Of a topic that is made."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the data source's writer; with `kafka.bootstrap.servers` it is another cluster than the sources'."""

    def __post_init__(self) -> None:
        if self.key is not None and self.format is ValueFormat.COLUMNS:
            raise ValueError("with `format: columns` the key is the rows' own column `key`")
        if self.partitions < 1:
            raise ValueError(f"`partitions: {self.partitions}`: a topic has at least one")
        _parse({BOOTSTRAP: "any:9092", **self.writer_options("any")})

    def writer_options(self, transactional_id_prefix: str) -> dict[str, str]:
        """Of the data source, but for the cluster."""
        return {**self.options, "topic": self.topic, "transactionalIdPrefix": transactional_id_prefix}


class TopicSink:
    """See the module. A rival that writes the same batch is shut out by the pipeline's lock, and told by `has`."""

    def __init__(self, settings: TopicSettings, context: SinkContext) -> None:
        self.name = context.sink
        self._settings = settings
        shared = {
            name: value for name, value in context.source_options.items() if name.removeprefix(PREFIX) in _OF_BOTH
        }
        # No name of a pipeline has a slash in it, so no other pair of names makes the same prefix.
        own = settings.writer_options(f"barnabas-pipeline/{context.pipeline}/{context.sink}")
        self.options = {**shared, **own}
        self._spark: SparkSession | None = None

    def prepare(self, spark: SparkSession) -> None:
        """Finishes a write that was decided before a crash, too."""
        self._spark = spark
        self._run(persevere(self._find_topic, _parse(self.options).max_block_ms))
        self._place()

    def look(self, spark: SparkSession) -> Offsets | None:
        """What is decided counts, whether or not somebody has carried it out."""
        return _place_of(self._run(persevere(self._look_up, _parse(self.options).max_block_ms))).offsets or None

    def done_offsets(self) -> Offsets | None:
        return self._place().offsets or None

    def direct_obstacle(self, spark: SparkSession, columns: Collection[str]) -> str | None:
        if self._settings.format is ValueFormat.JSON:
            return "its values are JSON, which Spark's to_json makes"
        return None

    def write(self, rows: DataFrame | DirectRows, batch: Batch) -> Written:
        from barnabas.spark.pipeline.topic_tasks import Sending, send, send_direct

        place = self._place()
        if place.has(batch):
            return NOTHING
        records = rows if isinstance(rows, DirectRows) else self._records(rows)
        self._check(records.schema)
        options = _parse(self.options)
        sending = Sending(options, Work(str(place.after(batch)), is_remembered=True))
        unsure = 0
        try:
            if isinstance(records, DirectRows):
                sent, unsure = send_direct(self._prepared(), records, batch, sending)
            else:
                sent = send(records, sending)
            self._run(commit(options, sending.work, tuple(each.transaction for each in sent)))
        except BaseException:
            run(abort(options))
            raise
        return Written(sum(each.rows for each in sent), unsure=unsure)

    def close(self) -> None:
        self._spark = None

    def _prepared(self) -> SparkSession:
        assert self._spark is not None, "prepare comes first"
        return self._spark

    def _check(self, schema: StructType) -> None:
        try:
            check_columns(schema, self._settings.topic)
        except WrongColumns as error:
            raise SinkError(f"sink '{self.name}': {error}") from error

    def _place(self) -> Place:
        return _place_of(self._run(recover(_parse(self.options))))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return run(work)
        except KafkaError as error:
            raise SinkError(f"topic '{self._settings.topic}': {in_words_of_pipelines(str(error))}") from error

    async def _find_topic(self) -> None:
        topic = self._settings.topic
        async with open_client(_parse(self.options).kafka) as client:
            if topic in {known.name for known in await client.retrying(client.metadata.all_topics)}:
                return
            if not self._settings.create:
                raise SinkError(f"topic '{topic}' is not in the cluster: create it, or say `create: true`")
            await Topics(client).create(topic, partitions=self._settings.partitions)
            await client.retrying(lambda: client.metadata.topic(topic))

    async def _look_up(self) -> Decision | None:
        options = _parse(self.options)
        assert options.prefix is not None
        async with open_client(options.kafka) as client:
            return await look_up(client, options.control_topic, options.prefix)

    def _records(self, frame: DataFrame) -> DataFrame:
        """The rows as records: key and value."""
        from pyspark.sql.functions import struct, to_json

        if self._settings.format is ValueFormat.COLUMNS:
            return frame
        names = [name for name in frame.columns if name not in ORIGIN_COLUMNS]
        value = to_json(struct(*(frame[_quoted(name)] for name in names)), {"ignoreNullFields": "false"})
        return frame.select(*self._key_column(frame), value.alias("value"))

    def _key_column(self, frame: DataFrame) -> list[Column]:
        key = self._settings.key
        if key is None:
            return []
        types = dict(frame.dtypes)
        if key not in types:
            raise SinkError(f"the rows have no column '{key}', which is to be the key (there are: {', '.join(types)})")
        column = frame[_quoted(key)]
        return [(column if types[key] == "binary" else column.cast("string")).alias("key")]


_OF_BOTH = frozenset({"bootstrap.servers", *PRODUCER})
"""What a source says about the cluster that holds for a producer too, without `kafka.`."""


def _parse(options: Mapping[str, str]) -> WriteOptions:
    """As Spark hands them over: names in small letters."""
    return parse_batch_write_options({name.lower(): value for name, value in options.items()})


def _place_of(last: Decision | None) -> Place:
    return Place.parse(last.work.name) if last else Place()


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))


KIND = SinkKind(TopicSettings, TopicSink, may_be_direct=lambda settings: settings.format is ValueFormat.COLUMNS)
