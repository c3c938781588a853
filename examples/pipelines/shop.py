"""Functions that the pipelines beside this file name: each makes one DataFrame of another."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def without_parameters(clicks: DataFrame) -> DataFrame:
    """`/search?q=shoes` is the page `/search`."""
    return clicks.withColumn("page", f.split_part(f.col("page"), f.lit("?"), f.lit(1)))
