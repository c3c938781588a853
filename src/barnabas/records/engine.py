"""The one place that chooses which record codec runs: the compiled one, or its sources.

The compiled one carries the digest of the sources that it was made from. If those are not the files beside it, edits
would silently not run, so it is refused. `BARNABAS_PURE=1` refuses it too. Whoever needs the codec asks for
`engine.codec`, `engine.column_codec` and the like at the time of the call.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from pathlib import Path
from typing import Any, NamedTuple

SOURCES = (
    "codec.py",
    "column_codec.py",
    "row_codec.py",
    "compaction_codec.py",
    "append_codec.py",
    "utf8.py",
    "value_sinks.py",
    "json_scanner.py",
    "value_numbers.py",
    "json_codec.py",
    "csv_codec.py",
    "avro_decoder.py",
    "avro_codec.py",
)
COMPILED_MODULE = "barnabas.records._codec_c"
BUILD_COMMAND = "python setup.py build_ext --inplace"


class Choice(NamedTuple):
    codec: Any
    column_codec: Any
    row_codec: Any
    compaction_codec: Any
    append_codec: Any
    json_codec: Any
    csv_codec: Any
    avro_codec: Any
    compiled: bool
    reason: str


def choose(pure: bool) -> Choice:
    """The compiled codec if it is there, fits its sources and is wanted; the reason tells why or why not."""
    if pure:
        return _plain("BARNABAS_PURE is set")
    try:
        compiled = importlib.import_module(COMPILED_MODULE)
    except ModuleNotFoundError:
        return _plain(f"{COMPILED_MODULE} is not built; build it with `{BUILD_COMMAND}`")
    except ImportError as error:
        return _plain(f"{COMPILED_MODULE} does not load: {error}")
    if source_digest() != compiled.SOURCE_DIGEST:
        return _plain(f"{compiled.__file__} was built from other sources; rebuild it with `{BUILD_COMMAND}`")
    reason = f"{compiled.__file__} fits its sources"
    return Choice(compiled, compiled, compiled, compiled, compiled, compiled, compiled, compiled, True, reason)


def _plain(reason: str) -> Choice:
    from barnabas.records import (
        append_codec,
        avro_codec,
        codec,
        column_codec,
        compaction_codec,
        csv_codec,
        json_codec,
        row_codec,
    )

    return Choice(
        codec, column_codec, row_codec, compaction_codec, append_codec, json_codec, csv_codec, avro_codec, False, reason
    )


def source_digest() -> str:
    here = Path(__file__).parent
    return hashlib.sha256(b"".join((here / name).read_bytes() for name in SOURCES)).hexdigest()


(
    codec, column_codec, row_codec, compaction_codec, append_codec, json_codec, csv_codec, avro_codec, COMPILED, REASON
) = choose(pure=os.environ.get("BARNABAS_PURE", "0") not in ("", "0"))  # fmt: skip


def describe() -> str:
    """Which codec runs and why, in one line."""
    return f"{'compiled' if COMPILED else 'uncompiled'} record codec: {REASON}"
