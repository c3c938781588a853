"""The same work by a pipeline, several times in one session: what `barnabas pipeline run` does after its start.

    python -m benchmarks.by_pipeline '{"text": ..., "place": ..., "jobs": 2}'

In the text, ${PLACE} is a directory and ${JOB} a name, others for each job. Prints the seconds of each job as one line
of JSON.
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


def main(text: str, place: str, jobs: int = 1) -> dict[str, Any]:
    began = time.perf_counter()
    seconds: dict[str, Any] = {}
    first = parse_pipeline(text, "pipeline.yaml", {"PLACE": place, "JOB": "first"})
    is_direct = is_direct_by_design(first)
    with spark_session("benchmark", None, first.spark, Path(place, "session"), is_direct=is_direct) as spark:
        seconds["session"] = time.perf_counter() - began
        for number in range(jobs):
            variables = {"PLACE": f"{place}/{number}", "JOB": f"{Path(place).name}-{number}"}
            pipeline = parse_pipeline(text, "pipeline.yaml", variables)
            began = time.perf_counter()
            totals = run_pipeline(pipeline, spark, State(Path(place, f"state-{number}")), functions_in=Path(place))
            seconds[f"job {number}"] = time.perf_counter() - began
            seconds["rows"] = sum(totals.rows.values())
    return seconds


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
