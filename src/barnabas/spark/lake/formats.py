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


WRITE_OPTIONS: Mapping[FileFormat, Mapping[str, str]] = {
    FileFormat.PARQUET: {},
    FileFormat.ORC: {},
    # A null field must be told from a missing one neither here nor there, but hours must have the same lines each time.
    FileFormat.JSON: {"ignoreNullFields": "true"},
    FileFormat.CSV: {"header": "true", "escape": '"', "emptyValue": '""', "nullValue": ""},
}
READ_OPTIONS: Mapping[FileFormat, Mapping[str, str]] = {
    FileFormat.PARQUET: {},
    FileFormat.ORC: {},
    FileFormat.JSON: {"mode": "FAILFAST"},
    # Older files have the first columns of newer ones.
    FileFormat.CSV: {"header": "true", "escape": '"', "multiLine": "true", "emptyValue": "", "nullValue": ""},
}
_CSV_CANNOT_HOLD = ("binary", "struct", "array", "map", "variant")


def check_format(format: FileFormat, schema: Mapping[str, Any]) -> None:
    """Tell before a load what a format cannot hold."""
    if format is not FileFormat.CSV:
        return
    for field in schema["fields"]:
        kind = field["type"]["type"] if isinstance(field["type"], dict) else field["type"]
        if kind in _CSV_CANNOT_HOLD:
            raise WrongSchema(f"column {field['name']!r} is {kind}, which csv cannot hold; cast it, or take json")
