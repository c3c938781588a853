"""The data source `barnabas`: it hands Spark's options to the readers and writers that do the work.

Every process that Spark starts for a read or a write loads this module, so it loads the rest only where it is needed.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class BarnabasSource(DataSource):
    """Options and columns are those of Spark's own Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        from barnabas.spark.options import parse_columns, parse_decoding
        from barnabas.spark.schema import spark_schema
        from barnabas.spark.value_fields import parse_value_fields

        fields, decoding = parse_value_fields(self.options), parse_decoding(self.options)
        columns = parse_columns(self.options, fields)
        if decoding is None:
            return spark_schema(columns, None if fields is None else fields.schema)
        from barnabas.spark.decoded_rows import decoded_schema

        return decoded_schema(columns, decoding)

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.options import parse_batch_options
        from barnabas.spark.reader import BatchReader, FilteringBatchReader

        options = parse_batch_options(self.options)
        reader = FilteringBatchReader if options.push_filters else BatchReader
        return reader(options, self._columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from barnabas.spark.options import parse_stream_options
        from barnabas.spark.stream_reader import StreamReader

        return StreamReader(parse_stream_options(self.options), self._columns(schema))

    def _columns(self, schema: StructType) -> tuple[str, ...]:
        """Those of the rows; those of the records, where a pipeline has them decoded."""
        from barnabas.spark.options import named_columns, parse_columns, parse_decoding
        from barnabas.spark.schema import chosen_columns
        from barnabas.spark.value_fields import parse_value_fields

        if parse_decoding(self.options) is not None:
            return parse_columns(self.options)
        fields = parse_value_fields(self.options)
        return chosen_columns(schema, named_columns(self.options, fields), None if fields is None else fields.schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from barnabas.spark.write_options import parse_batch_write_options
        from barnabas.spark.writer import batch_writer

        return batch_writer(parse_batch_write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from barnabas.spark.stream_writer import stream_writer
        from barnabas.spark.write_options import parse_stream_write_options

        return stream_writer(parse_stream_write_options(self.options), schema)
