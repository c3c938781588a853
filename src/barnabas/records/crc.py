"""CRC-32C: the function of the package `crc32c`, without the rest of the package.

The package imports `importlib.metadata`, for its version, and a command line of its own, which took a twentieth of the
CPU time of a broker's start. So its extension is loaded by itself; where that is not found under its name, the package
is imported after all.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any


def _load() -> Any:
    package = find_spec("crc32c")
    extension = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if extension is None or extension.loader is None:
        import crc32c

        return crc32c
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return module


crc32c: Callable[..., int] = _load().crc32c
"""`crc32c(data, crc=0)`: the checksum of any buffer, or of what follows one whose checksum is `crc`."""
