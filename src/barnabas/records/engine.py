"""The one place that chooses which record codec runs: the compiled one, or its source.

The compiled one carries the digest of the `codec.py` that it was made from. If that is not the file beside it, edits
would silently not run, so it is refused. `BARNABAS_PURE=1` refuses it too. Whoever needs the codec asks for
`engine.codec` at the time of the call.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.records import codec as uncompiled_codec

COMPILED_MODULE = "barnabas.records._codec_c"
BUILD_COMMAND = "python setup.py build_ext --inplace"


class Choice(NamedTuple):
    codec: Any
    compiled: bool
    reason: str


def choose(pure: bool) -> Choice:
    """The compiled codec if it is there, fits its source and is wanted; the reason tells why or why not."""
    if pure:
        return Choice(uncompiled_codec, False, "BARNABAS_PURE is set")
    try:
        compiled = importlib.import_module(COMPILED_MODULE)
    except ModuleNotFoundError:
        return Choice(uncompiled_codec, False, f"{COMPILED_MODULE} is not built; build it with `{BUILD_COMMAND}`")
    except ImportError as error:
        return Choice(uncompiled_codec, False, f"{COMPILED_MODULE} does not load: {error}")
    source = Path(uncompiled_codec.__file__)
    if hashlib.sha256(source.read_bytes()).hexdigest() != compiled.SOURCE_DIGEST:
        reason = f"{compiled.__file__} was built from another {source.name}; rebuild it with `{BUILD_COMMAND}`"
        return Choice(uncompiled_codec, False, reason)
    return Choice(compiled, True, f"built from {source}")


codec: Any
codec, COMPILED, REASON = choose(pure=os.environ.get("BARNABAS_PURE", "0") not in ("", "0"))


def describe() -> str:
    """Which codec runs and why, in one line."""
    return f"{'compiled' if COMPILED else 'uncompiled'} record codec: {REASON}"
