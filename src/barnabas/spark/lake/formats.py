"""The file formats of a lake, and what each needs to be read and written back as it was."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from barnabas.spark.lake.errors import WrongSchema


class FileFormat(StrEnum):
    PARQUET = "parquet"
    ORC = "orc"
    JSON = "json"
    CSV = "csv"


_TIMES = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Texts with every microsecond, and the same ones in every session."""
_CSV = {**_TIMES, "header": "true", "escape": '"', "nullValue": r"\N"}
"""Null as Hive writes it, or it could not be told from an empty text."""
_WRITE_OPTIONS: Mapping[FileFormat, Mapping[str, str]] = {
    FileFormat.PARQUET: {},
    FileFormat.ORC: {},
    FileFormat.JSON: _TIMES,
    FileFormat.CSV: {**_CSV, "emptyValue": '""'},
}
_READ_OPTIONS: Mapping[FileFormat, Mapping[str, str]] = {
    FileFormat.PARQUET: {},
    FileFormat.ORC: {},
    FileFormat.JSON: {**_TIMES, "mode": "FAILFAST"},
    FileFormat.CSV: {**_CSV, "emptyValue": "", "multiLine": "true"},
}


def write_options(format: FileFormat, given: Mapping[str, str]) -> dict[str, str]:
    """For Spark's writer; what the lake's owner has chosen counts more."""
    return {**_WRITE_OPTIONS[format], **given}


def read_options(format: FileFormat, given: Mapping[str, str]) -> dict[str, str]:
    return {**_READ_OPTIONS[format], **given}


_CSV_CANNOT_HOLD = ("binary", "struct", "array", "map", "variant")


def check_format(format: FileFormat, schema: Mapping[str, Any]) -> None:
    """Tell before a load what a format cannot hold."""
    if format is not FileFormat.CSV:
        return
    for field in schema["fields"]:
        kind = field["type"]["type"] if isinstance(field["type"], dict) else field["type"]
        if kind in _CSV_CANNOT_HOLD:
            raise WrongSchema(f"column {field['name']!r} is {kind}, which csv cannot hold; cast it, or take json")
