"""A sample of `make soak`: a pipeline whose driver is killed once, and which Ctrl-C ends.

In `make proof` also one with three sinks, of which driver, workers and broker are killed twice each, and an offline
load whose driver is killed once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.pipeline.definition_file import load_pipeline
from barnabas.spark.pipeline.runner import run_pipeline
from barnabas.spark.pipeline.state import State
from barnabas.spark.pipeline.status import read_history
from tests.spark.killing import ARROW, OFFLINE, STEADY, WAVE, PipelineProcess, Victim, disturb
from tests.spark.landings import Lake, Table, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 7


@pytest.fixture
def run_here(spark: SparkSession, tmp_path: Path) -> Callable[[PipelineProcess, float], None]:
    """Runs the undisturbed pipeline in the session that is there."""

    def run(undisturbed: PipelineProcess, _: float) -> None:
        pipeline = load_pipeline(undisturbed.file)
        run_pipeline(pipeline, spark, State(undisturbed.state), functions_in=tmp_path)

    return run


@pytest.mark.timeout(600)
def test_a_pipeline_whose_driver_is_killed_loses_and_doubles_no_row(
    run_here: Callable[[PipelineProcess, float], None], tmp_path: Path
) -> None:
    way = replace(STEADY, transform=ARROW)
    report = disturb({"sqlite": Table}, [Victim.DRIVER], tmp_path, SEED, run_alone=run_here, way=way)
    assert report.kills == {Victim.DRIVER: 1}
    assert report.starts >= 2


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_a_pipeline_that_is_killed_again_and_again_loses_and_doubles_no_row(
    run_here: Callable[[PipelineProcess, float], None], tmp_path: Path
) -> None:
    victims = [*Victim] * 2
    random.Random(SEED).shuffle(victims)
    sinks = {"parquet": Lake, "sqlite": Table, "topic": Topic}
    report = disturb(sinks, victims, tmp_path, SEED, run_alone=run_here)
    assert report.kills == dict.fromkeys(Victim, 2)
    assert report.starts >= 3


@pytest.mark.proof
@pytest.mark.parametrize("transform", [ARROW, "sql"])
@pytest.mark.timeout(600)
def test_an_offline_load_whose_driver_is_killed_in_the_middle_goes_on_with_what_is_missing(
    transform: str, run_here: Callable[[PipelineProcess, float], None], tmp_path: Path
) -> None:
    way = replace(OFFLINE, transform=transform)
    report = disturb({"parquet": Lake}, [Victim.DRIVER], tmp_path, SEED, run_alone=run_here, way=way)
    assert report.starts == 2
    told = [*read_history(State(tmp_path / "disturbed" / "state").history_file)]
    again = [each.batch for each in told].index(0, 1)
    assert 0 < again < len(told), "it was killed before its first task, or after its last"
    assert sum(each.records for each in told) <= WAVE
    assert told[-1].lag == 0
