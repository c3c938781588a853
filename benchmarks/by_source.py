"""A query over values that our data source decodes, several times in one session.

    python -m benchmarks.by_source '{"address": ..., "topic": ..., "columns": ..., "query": ..., "jobs": 2, ...}'

Prints one line of JSON: the seconds of each job. The first one is cold, the others warm.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from barnabas.spark import register
from benchmarks.by_hand import result_of, session


def main(address: str, topic: str, format: str, schema: str, columns: str, query: str, jobs: int = 1) -> dict[str, Any]:
    """`rows` is the result of the query."""
    spark = session(())
    register(spark)
    found: dict[str, Any] = {}
    for number in range(jobs):
        began = time.perf_counter()
        rows = (
            spark.read.format("barnabas")
            .option("kafka.bootstrap.servers", address)
            .option("subscribe", topic)
            .option("value.format", format)
            .option("value.schema", schema)
            .option("columns", columns)
            .load()
        )
        rows.createOrReplaceTempView("clicks")
        found["rows"] = result_of(spark, query)
        found[f"job {number}"] = time.perf_counter() - began
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
