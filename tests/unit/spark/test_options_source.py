"""How Spark comes to know the data source, and which reader it gets for which options."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.datasource import DataSourceReader

import pyspark_barnabas
from barnabas.spark import register
from barnabas.spark.source import BarnabasSource

OPTIONS = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def test_spark_finds_the_source_in_the_module_that_it_looks_for() -> None:
    assert pyspark_barnabas.DefaultSource is BarnabasSource
    assert BarnabasSource.name() == "barnabas"


@pytest.mark.parametrize("missing", ["pyspark.sql.datasource", "barnabas.spark.source"])
def test_the_module_offers_nothing_and_raises_nothing_where_the_source_cannot_work(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pyspark_barnabas")
    monkeypatch.delitem(sys.modules, "barnabas.spark.source")
    monkeypatch.setitem(sys.modules, missing, cast("Any", None))
    assert not hasattr(importlib.import_module("pyspark_barnabas"), "DefaultSource")


def test_one_call_makes_the_source_known_where_it_is_not_found() -> None:
    known: list[type] = []
    context, sources = SimpleNamespace(pythonExec="python"), SimpleNamespace(register=known.append)
    register(cast("Any", SimpleNamespace(sparkContext=context, dataSource=sources)))
    assert known == [BarnabasSource]


def test_filters_are_pushed_to_a_reader_only_where_that_is_asked_for() -> None:
    """Spark fails every read of a reader that defines `pushFilters` while its own setting for them is off."""
    for chosen, defines in (({}, False), ({"pushfilters": "false"}, False), ({"pushfilters": "true"}, True)):
        source = BarnabasSource({**OPTIONS, **chosen})
        reader = source.reader(source.schema())
        assert (type(reader).pushFilters is not DataSourceReader.pushFilters) is defines


def test_every_filter_goes_back_to_spark() -> None:
    source = BarnabasSource({**OPTIONS, "pushfilters": "true"})
    filters: list[Any] = [object(), object()]
    assert list(source.reader(source.schema()).pushFilters(filters)) == filters
