"""All tests in a few processes side by side: many wait for other programs, and leave the processors to the rest.

Those that are marked `alone` count time: they run when all the others are over. Lines of all appear as they come; what
each has to say at its end appears in one piece, and the last line of all sums them up in pytest's own form.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

TESTS = Path(__file__).parent
SHARES = (
    ("spark",),
    ("clients", "storage_oracles", "simulation"),
    ("cli", "cluster", "interop", "testing", "zookeeper"),
)
"""Directories by the process that runs their tests, so that all end at about the same time. One more runs the rest."""
_RULE = re.compile(r"=+ .+ =+$")
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?)")
_ORDER = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")


class Part:
    """One pytest and what it prints."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "pytest", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.ending: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        is_over = started = False
        for line in self.process.stdout:
            ruled = _RULE.match(line) is not None
            is_over = is_over or (ruled and started)
            started = started or ruled
            if is_over:
                self.ending.append(line)
            else:
                print(line, end="", flush=True)

    def wait(self) -> int:
        code = self.process.wait()
        self._reader.join()
        print(*self.ending, sep="", end="", flush=True)
        return code

    def stop(self) -> None:
        """Let it end what it has started, unless it is over."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()

    def counts(self) -> Counter[str]:
        last = self.ending[-1] if self.ending else ""
        return Counter(
            {kind.rstrip("s") if kind != "passed" else kind: int(number) for number, kind in _COUNT.findall(last)}
        )


def main() -> int:
    began = time.monotonic()
    shares = [[str(TESTS / name) for name in names] for names in SHARES]
    rest = [str(TESTS), *(f"--ignore={path}" for paths in shares for path in paths)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parts: list[Part] = []
    codes: list[int] = []
    try:
        parts += [Part(["-m", "not alone", *arguments]) for arguments in (*shares, rest)]
        codes += [part.wait() for part in parts]
        parts.append(Part(["-m", "alone", str(TESTS)]))
        codes.append(parts[-1].wait())
    finally:
        for part in parts:
            part.stop()
    counts = sum((part.counts() for part in parts), Counter[str]())
    told = ", ".join(f"{counts[kind]} {kind}" for kind in _ORDER if counts[kind])
    seconds = time.monotonic() - began
    print(f" {told} in {seconds:.2f}s ({timedelta(seconds=int(seconds))}) ".center(80, "="))
    return next(filter(None, codes), 0)


if __name__ == "__main__":
    sys.exit(main())
