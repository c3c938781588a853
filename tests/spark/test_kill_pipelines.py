"""A sample of `make soak`: one pipeline with three sinks, of which driver, workers and broker are killed twice each."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.peers import java
from tests.spark.killing import Victim, disturb
from tests.spark.landings import Lake, Table, Topic

SEED = 7


@pytest.mark.timeout(900)
def test_a_pipeline_that_is_killed_again_and_again_loses_and_doubles_no_row(tmp_path: Path) -> None:
    java()
    victims = [*Victim] * 2
    random.Random(SEED).shuffle(victims)
    report = disturb({"parquet": Lake, "sqlite": Table, "topic": Topic}, victims, tmp_path, SEED)
    assert report.kills == dict.fromkeys(Victim, 2)
    assert report.starts >= 3
