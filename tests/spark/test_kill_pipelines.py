"""A sample of `make soak`: one pipeline with three sinks, of which driver, workers and broker are killed twice each."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.pipeline.definition_file import load_pipeline
from barnabas.spark.pipeline.runner import run_pipeline
from barnabas.spark.pipeline.state import State
from tests.spark.killing import PipelineProcess, Victim, disturb
from tests.spark.landings import Lake, Table, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 7


@pytest.mark.timeout(900)
def test_a_pipeline_that_is_killed_again_and_again_loses_and_doubles_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run_here(undisturbed: PipelineProcess, _: float) -> None:
        pipeline = load_pipeline(undisturbed.file)
        run_pipeline(pipeline, spark, State(undisturbed.state), functions_in=tmp_path)

    victims = [*Victim] * 2
    random.Random(SEED).shuffle(victims)
    sinks = {"parquet": Lake, "sqlite": Table, "topic": Topic}
    report = disturb(sinks, victims, tmp_path, SEED, run_alone=run_here)
    assert report.kills == dict.fromkeys(Victim, 2)
    assert report.starts >= 3
