"""The views of a pipeline as DataFrames: over no records, over ranges of offsets, or over streams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.client.metadata import TopicPartition
from barnabas.spark import register
from barnabas.spark.offsets import nested
from barnabas.spark.options import parse_batch_options
from barnabas.spark.pipeline.across import marked
from barnabas.spark.pipeline.definition import DataLoss, Pipeline, Source, Transform
from barnabas.spark.pipeline.formats import Decoder, make_decoder
from barnabas.spark.pipeline.paths import decoding_of, direct_chain, undecodable
from barnabas.spark.pipeline.sinks import Offsets
from barnabas.spark.pipeline.topics import Layout
from barnabas.spark.pipeline.transforms import build_views, load_arrow_function, ship
from barnabas.spark.ranges import ranges_between
from barnabas.spark.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from barnabas.spark.direct.rows import DirectRows, Reading
    from barnabas.spark.direct.unsure import UnsureRecords

Views = Mapping[str, "DataFrame"]
_WHOLE_RECORD = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_EARLIEST = -2


class Frames:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, functions_in: Path) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._functions_in = functions_in
        self._has_source = False
        self.decoders = {source.name: make_decoder(source) for source in pipeline.sources}

    @cached_property
    def rehearsal(self) -> Views:
        """Views without rows: they show what SQL and functions make of the schemas before anything is read."""
        rows = {}
        for name, decoder in self.decoders.items():
            empty = self._nothing(self._rows(decoder, self._nothing(spark_schema(decoder.columns))).schema)
            rows[name] = empty if decoder.source.is_table else marked(empty)
        return self._build(rows)

    def of_ranges(self, layout: Layout, start: Offsets, end: Offsets, tables: Offsets) -> Views:
        """`tables` holds the ends of the sources that are read whole."""
        rows = {}
        for name, decoder in self.decoders.items():
            if decoder.source.is_table:
                ends = layout.part(name, tables)
                records = self._range(decoder.source, decoder.columns, dict.fromkeys(ends, _EARLIEST), ends)
            else:
                starts, ends = layout.part(name, start), layout.part(name, end)
                records = self._range(decoder.source, decoder.columns, starts, ends, self._decoding(decoder))
            rows[name] = self._rows(decoder, records)
        return self._build(rows)

    def streams(self, layout: Layout, start: Offsets) -> Views:
        """Streams from these offsets on; Spark's checkpoint counts more than they do."""
        rows = {}
        for name, decoder in self.decoders.items():
            source = decoder.source
            options = {**source.topic_options(), "columns": ",".join(decoder.columns)}
            if source.is_table:
                records = self._with_source().read.format("barnabas").options(**self._kafka(), **options).load()
            else:
                options |= {"startingOffsets": _json(layout.part(name, start)), **_on_loss(source)}
                options |= self._decoding(decoder)
                if self._pipeline.max_records_per_batch is not None:
                    options["maxOffsetsPerTrigger"] = str(self._pipeline.max_records_per_batch)
                records = self._with_source().readStream.format("barnabas").options(**self._kafka(), **options).load()
            rows[name] = self._rows(decoder, records)
        return self._build(rows)

    def direct(self, layout: Layout, view: str, unsure: UnsureRecords) -> DirectRows:
        """A view that `paths` has found fit for the direct path, for tasks to load.

        Where there are dead letters, the records that they are unsure of are kept whole.
        """
        from barnabas.spark.direct.rows import DirectRows

        source, transforms = direct_chain(self._pipeline, view)
        decoder = self.decoders[source.name]
        functions = [load_arrow_function(str(each.arrow), self._functions_in) for each in transforms]
        for function in functions:
            ship(self._spark, function)

        def decode(records: DataFrame) -> DataFrame:
            return self._build({source.name: self._rows(decoder, records)}, only=[source, *transforms])[view]

        has_letters = self._pipeline.dead_letters is not None
        reading = self._reading(layout, decoder, _WHOLE_RECORD if has_letters else decoder.columns)
        return DirectRows(
            reading=replace(reading, functions=functions),
            schema=self.rehearsal[view].schema,
            decode=decode,
            max_records_per_task=self._pipeline.max_records_per_task,
            source=source.name,
            unsure=unsure if has_letters else None,
        )

    def _reading(self, layout: Layout, decoder: Decoder, columns: Sequence[str]) -> Reading:
        """Of a source itself."""
        from barnabas.spark.direct.rows import Reading

        source = decoder.source
        options = {**self._kafka(), **source.topic_options(), **_on_loss(source)}
        return Reading(
            options=parse_batch_options({name.lower(): value for name, value in options.items()}),  # as Spark does
            topic_ids={name: bytes.fromhex(topic_id) for name, topic_id in layout.topic_ids.items()},
            columns=columns,
            decoding=decoding_of(self._spark, decoder),
            key=source.key,
        )

    def bad_records(
        self, layout: Layout, start: Offsets, end: Offsets, unsure: UnsureRecords | None = None
    ) -> dict[str, DataFrame]:
        """By source, the raw records between offsets that cannot be read, with all that belongs to them.

        They are read again only if loads have not left them among the unsure ones.
        """
        from pyspark.sql import DataFrame

        from barnabas.spark.direct.job import unsure_records

        found = {}
        for name, decoder in self.decoders.items():
            starts, ends = layout.part(name, start), layout.part(name, end)
            ranges = ranges_between(starts, ends)
            kept = None if unsure is None else unsure.among(name, ranges)
            if kept is not None:
                records = reduce(DataFrame.union, kept, self._nothing(spark_schema(_WHOLE_RECORD)))
            elif undecodable(self._spark, decoder) is None:
                reading = self._reading(layout, decoder, _WHOLE_RECORD)
                records = unsure_records(self._spark, reading, ranges, self._pipeline.max_records_per_task)
            else:
                records = self._range(decoder.source, _WHOLE_RECORD, starts, ends)
            found[name] = decoder.bad(records)
        return found

    def _rows(self, decoder: Decoder, records: DataFrame) -> DataFrame:
        return decoder.decode(records, stop_at_bad=self._pipeline.dead_letters is None)

    def _build(self, rows: Views, only: Sequence[Source | Transform] | None = None) -> Views:
        views = self._pipeline.views if only is None else only
        return build_views(self._spark, views, rows, self._functions_in)

    def _with_source(self) -> SparkSession:
        """The session, in which the data source is registered when it is first used: that costs Spark a second."""
        if not self._has_source:
            register(self._spark)
            self._has_source = True
        return self._spark

    def _kafka(self) -> dict[str, str]:
        return self._pipeline.cluster.source_options()

    def _nothing(self, schema: StructType) -> DataFrame:
        return self._spark.createDataFrame([], schema)

    def _decoding(self, decoder: Decoder) -> dict[str, str]:
        """The option by which tasks decode the values of a source, where they can."""
        if undecodable(self._spark, decoder) is not None:
            return {}
        return {"decoding": decoding_of(self._spark, decoder).dump()}

    def _range(
        self,
        source: Source,
        columns: Sequence[str],
        start: Offsets,
        end: Offsets,
        decoding: Mapping[str, str] | None = None,
    ) -> DataFrame:
        if not start:
            return self._nothing(spark_schema(columns))
        assigned: dict[str, list[int]] = {}
        for topic, partition in sorted(start):
            assigned.setdefault(topic, []).append(partition)
        options = {
            "assign": json.dumps(assigned),
            "startingOffsets": _json(start),
            "endingOffsets": _json(end),
            "columns": ",".join(columns),
            "maxRecordsPerPartition": str(self._pipeline.max_records_per_task),
            **_on_loss(source),
            **(decoding or {}),
        }
        return self._with_source().read.format("barnabas").options(**self._kafka(), **options).load()


def _on_loss(source: Source) -> dict[str, str]:
    return {"failOnDataLoss": str(source.data_loss is DataLoss.FAIL).lower()}


def _json(offsets: Offsets) -> str:
    return json.dumps(nested({TopicPartition(*partition): offset for partition, offset in offsets.items()}))
