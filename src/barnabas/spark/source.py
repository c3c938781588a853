"""The data source `barnabas`: it hands Spark's options to the readers and writers that do the work."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from barnabas.spark.options import parse_batch_options, parse_columns, parse_stream_options
from barnabas.spark.reader import BatchReader
from barnabas.spark.schema import spark_schema
from barnabas.spark.stream_reader import StreamReader
from barnabas.spark.stream_writer import stream_writer
from barnabas.spark.write_options import parse_batch_write_options, parse_stream_write_options
from barnabas.spark.writer import batch_writer


class BarnabasSource(DataSource):
    """Options and columns are those of Spark's own Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        return spark_schema(parse_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(parse_batch_options(self.options), tuple(schema.fieldNames()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(parse_stream_options(self.options), tuple(schema.fieldNames()))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return batch_writer(parse_batch_write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return stream_writer(parse_stream_write_options(self.options), schema)
