"""Topics as tables: the Spark data source `barnabas`, and the pipelines that stand on it.

Spark finds the source by itself where the package is installed; `register` is the one call where it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("barnabas")` known to a session."""
    from barnabas.spark.source import BarnabasSource

    spark.dataSource.register(BarnabasSource)
