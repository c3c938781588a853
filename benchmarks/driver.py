"""What a Spark driver can say about itself: the memory that it keeps, and when its last job ended."""

from __future__ import annotations

from typing import Any

import psutil
from pyspark.sql import SparkSession


def kept_mb(spark: SparkSession) -> float:
    """The live objects of its Java, and its Python."""
    jvm = spark._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    java = jvm.java.lang.Runtime.getRuntime()
    python: int = psutil.Process().memory_info().rss
    return float(java.totalMemory() - java.freeMemory() + python) / 1e6


def last_job_ended(spark: SparkSession) -> float:
    """As `time.time()` has it. Spark keeps the times of its jobs also without its web pages."""
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    ended = [jobs.apply(index).completionTime() for index in range(jobs.size())]
    return float(max(time.get().getTime() for time in ended if time.isDefined())) / 1000
