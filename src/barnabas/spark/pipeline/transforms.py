"""Views made of views: Spark SQL, functions by dotted name, windows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.spark.pipeline.definition import Source, Transform, Watermark, Window
from barnabas.spark.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.spark.direct.task import ArrowFunction


def build_views(
    spark: SparkSession,
    chosen: Sequence[Source | Transform],
    sources: Mapping[str, DataFrame],
    functions_in: Path,
) -> dict[str, DataFrame]:
    """The chosen views by name, each known to SQL too. What is wrong with one is reported with its name."""
    from pyspark.errors import PySparkException

    views: dict[str, DataFrame] = {}
    for view in chosen:
        try:
            if isinstance(view, Transform):
                frame = _apply(spark, view, views, functions_in)
            else:
                frame = sources[view.name]
            frame = _with_watermark(frame, view.watermark)
            frame.createOrReplaceTempView(view.name)
        except PySparkException as error:
            raise PipelineError(f"view {view.name!r}: {first_line(error)}") from None
        views[view.name] = frame
    return views


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


def _apply(spark: SparkSession, transform: Transform, views: Mapping[str, DataFrame], functions_in: Path) -> DataFrame:
    if transform.sql is not None:
        return spark.sql(transform.sql.strip().rstrip(";"))
    assert transform.from_ is not None
    frame = views[transform.from_]
    if transform.window is not None:
        return _windowed(frame, transform.window)
    if transform.arrow is not None:
        return _in_arrow(spark, load_arrow_function(transform.arrow, functions_in), transform, frame)
    assert transform.python is not None
    return _call(spark, load_function(transform.python, functions_in), transform, frame)


def _windowed(frame: DataFrame, window: Window) -> DataFrame:
    from pyspark.sql import functions as f

    if window.gap is not None:
        span = f.session_window(window.column, window.gap)
    else:
        assert window.size is not None
        span = f.window(window.column, window.size, window.slide)
    grouped = frame.groupBy(span.alias("_window"), *window.group_by)
    counted = grouped.agg(*(f.expr(expression).alias(name) for name, expression in window.aggregate.items()))
    bounds = (f.col("_window.start").alias("window_start"), f.col("_window.end").alias("window_end"))
    return counted.select(*bounds, *window.group_by, *window.aggregate)


def load_arrow_function(dotted: str, directory: Path) -> ArrowFunction:
    function: Any = load_function(dotted, directory)
    return function  # type: ignore[no-any-return]


def _in_arrow(spark: SparkSession, function: ArrowFunction, transform: Transform, frame: DataFrame) -> DataFrame:
    import pyarrow
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    ship(spark, function)
    empty = to_arrow_schema(frame.schema, timezone="UTC").empty_table().combine_chunks()
    try:
        result = function(
            pyarrow.RecordBatch.from_arrays([each.combine_chunks() for each in empty], schema=empty.schema)
        )
    except Exception as error:
        raise PipelineError(
            f"view {transform.name!r}: {transform.arrow} failed on a batch without rows: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(result, pyarrow.RecordBatch):
        raise PipelineError(
            f"view {transform.name!r}: {transform.arrow} returned {type(result).__name__}, not a RecordBatch"
        )
    return frame.mapInArrow(lambda batches: map(function, batches), from_arrow_schema(result.schema))


def load_function(dotted: str, directory: Path) -> Callable[[DataFrame], DataFrame]:
    """A function of an installed module, or of one that lies in the directory of the pipeline's file."""
    module_name, _, name = dotted.rpartition(".")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise PipelineError(f"cannot import {module_name!r} for {dotted!r}: {error}") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise PipelineError(f"module {module_name!r} has no function {name!r}")
    found: Callable[[DataFrame], DataFrame] = function
    return found


def _call(
    spark: SparkSession, function: Callable[[DataFrame], DataFrame], transform: Transform, frame: DataFrame
) -> DataFrame:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    ship(spark, function)
    try:
        result = function(frame)
    except PySparkException:
        raise
    except Exception as error:
        raise PipelineError(
            f"view {transform.name!r}: {transform.python} failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(result, DataFrame):
        raise PipelineError(
            f"view {transform.name!r}: {transform.python} returned {type(result).__name__}, not a DataFrame"
        )
    return result


def ship(spark: SparkSession, function: Callable[..., Any]) -> None:
    """Let the tasks import the function's module, if it is a lone file; what is installed they have already."""
    file = getattr(sys.modules[function.__module__], "__file__", None)
    if file is not None and "." not in function.__module__ and "site-packages" not in file:
        spark.sparkContext.addPyFile(file)
