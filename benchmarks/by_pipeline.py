"""The same work by a pipeline, several times in one session: what `barnabas pipeline run` does after its start.

    python -m benchmarks.by_pipeline '{"text": ..., "place": ..., "jobs": 2}'

In the text, ${PLACE} is a directory and ${JOB} a name, others for each job. Prints one line of JSON: the seconds of
each job, and those until the last of Spark's jobs in it, which stages the rows of a database.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from barnabas.spark.pipeline.definition_file import parse_pipeline
from barnabas.spark.pipeline.paths import is_direct_by_design
from barnabas.spark.pipeline.runner import run_pipeline
from barnabas.spark.pipeline.session import spark_session
from barnabas.spark.pipeline.state import State
from benchmarks import driver


def main(text: str, place: str, jobs: int = 1) -> dict[str, Any]:
    """`rows` are those of the last job, `driver_mb` the memory that the driver keeps after it."""
    found: dict[str, Any] = {}
    first = parse_pipeline(text, "pipeline.yaml", {"PLACE": place, "JOB": "first"})
    is_direct = is_direct_by_design(first)
    with spark_session("benchmark", None, first.spark, Path(place, "session"), is_direct=is_direct) as spark:
        for number in range(jobs):
            variables = {"PLACE": f"{place}/{number}", "JOB": f"{Path(place).name}-{number}"}
            pipeline = parse_pipeline(text, "pipeline.yaml", variables)
            began, began_at = time.perf_counter(), time.time()
            totals = run_pipeline(pipeline, spark, State(Path(place, f"state-{number}")), functions_in=Path(place))
            found[f"job {number}"] = time.perf_counter() - began
            found[f"staged {number}"] = driver.last_job_ended(spark) - began_at
            found["rows"] = sum(totals.rows.values())
        found["driver_mb"] = driver.kept_mb(spark)
    return found


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
