"""Clocks that can be set: a broker that is started with libfaketime reads how far its clock is off from a file."""

from __future__ import annotations

import os
from pathlib import Path

_PLACES = ("usr/lib/*/faketime/libfaketimeMT.so.1", "usr/lib*/faketime/libfaketimeMT.so.1")
_SITE = Path(__file__).parent / "faketime_site"
HOUR_S = 3600


def library() -> Path | None:
    """libfaketime, if it is installed (Debian: faketime)."""
    found = (path for place in _PLACES for path in sorted(Path("/").glob(place)))
    return next(found, None)


class Clock:
    """One broker's. Time that only counts (CLOCK_MONOTONIC) stays right, as it does where somebody sets a clock."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, off_by_s: int) -> None:
        replacement = self._file.with_suffix(".new")
        replacement.write_text(f"{off_by_s:+d}\n")
        replacement.replace(self._file)

    def environment(self) -> dict[str, str]:
        faketime = library()
        if faketime is None:
            return {}
        return {
            "LD_PRELOAD": str(faketime),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_SITE), os.environ.get("PYTHONPATH")))),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
