"""The works of the pipeline benchmarks are what their titles say, and pipelines can be made of them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow
import pytest

from barnabas.records.json_columns import JsonReader
from barnabas.spark.pipeline.definition_file import parse_pipeline
from benchmarks.pipeline_works import WORKS, Work, figures, pipeline_text
from benchmarks.values import AVRO, SMALL, WIDE, Values, unsure

DATABASE = "postgresql://postgres@127.0.0.1:5432/shop"
JSON_READER = JsonReader(
    pyarrow.schema(
        [
            ("id", pyarrow.int64()),
            ("user", pyarrow.string()),
            ("amount", pyarrow.float64()),
            ("at", pyarrow.timestamp("us", "UTC")),
        ]
    ),
    is_utc=True,
)


def values_of(values: Values, count: int) -> list[bytes]:
    random = Random(1)
    return [values.make(number, count, random) for number in range(count)]


@pytest.mark.parametrize("work", [work for work in WORKS if work.query is None], ids=lambda work: work.name)
def test_a_pipeline_can_be_made_of_a_work(work: Work) -> None:
    text = pipeline_text(work, "127.0.0.1:9092", DATABASE if work.database else None)
    pipeline = parse_pipeline(text, "pipeline.yaml", {"PLACE": "/data", "JOB": "1"})
    assert pipeline.sources[0].topics == (work.topic,)
    assert pipeline.sources[0].format == work.values.format


def test_every_figure_has_a_name_of_its_own() -> None:
    assert set(Counter(figure.name for figure in figures(WORKS)).values()) == {1}


@pytest.mark.parametrize(("values", "size"), [(SMALL, 75), (WIDE, 1000), (AVRO, 84)], ids=lambda each: str(each)[:20])
def test_values_are_as_large_as_titles_say(values: Values, size: int) -> None:
    made = values_of(values, 1000)
    assert sum(map(len, made)) / len(made) == pytest.approx(size, rel=0.15)


@pytest.mark.parametrize(("percent", "least", "most"), [(0, 0, 0), (1, 50, 150), (100, 10_000, 10_000)])
def test_the_share_of_unsure_values(percent: int, least: int, most: int) -> None:
    found = JSON_READER.read(pyarrow.array(values_of(unsure(percent), 10_000), pyarrow.binary()))
    assert least <= len(found.unsure) <= most
