"""Topics as tables: the Spark data source `barnabas`, and the pipelines that stand on it.

Spark finds the source by itself where the package is installed; `register` is the one call where it does not. Importing
this package before the session starts lets Spark's workers run in the environment of the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("barnabas")` known to a session."""
    from barnabas.spark.source import BarnabasSource

    worker_python.adopt(spark.sparkContext)
    spark.dataSource.register(BarnabasSource)


worker_python.choose()
