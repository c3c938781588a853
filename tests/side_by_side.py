"""All tests in a few processes side by side: many wait for other programs, and leave the processors to the rest.

Those that are marked `alone` count time: they run when all the others are over. Lines of all appear as they come; what
each has to say at its end appears in one piece, and the last line of all sums them up in pytest's own form.

Programs of others give up when four crowds share two processors. So what failed in the crowd is heard again without it,
if it is little: its failure stays in the output, and the last line counts it. What is drawn from a seed, or waits for
nobody, has no such excuse.
"""

from __future__ import annotations

import json
import re
import shutil
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
FROM_SEEDS = ("chaos", "checker", "hostile", "simulation", "unit")
MOST_HEARD_AGAIN = 3
_CACHES = TESTS.parent / ".pytest_cache" / "side_by_side"
_SOME_FAILED = 1  # pytest's exit code
_RULE = re.compile(r"=+ .+ =+$")
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?)")
_ORDER = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")


class Part:
    """One pytest and what it prints."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self._cache = _CACHES / name
        command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={self._cache}", *arguments]
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

    def failed(self) -> list[str]:
        """The tests that have, by pytest's own account."""
        account = self._cache / "v" / "cache" / "lastfailed"
        return list(json.loads(account.read_text())) if account.exists() else []

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
    shutil.rmtree(_CACHES, ignore_errors=True)
    parts: list[Part] = []
    again: list[str] = []
    try:
        parts += [Part(str(number), ["-m", "not alone", *share]) for number, share in enumerate((*shares, rest))]
        codes = [part.wait() for part in parts]
        failed = [test for part in parts for test in part.failed()]
        parts.append(Part("alone", ["-m", "alone", str(TESTS)]))
        codes.append(parts[-1].wait())
        if may_be_heard_again(failed, codes):
            again = failed
            print(f"{len(again)} failed in the crowd and are heard again:", *again, sep="\n  ", flush=True)
            parts.append(Part("again", again))
            codes = [parts[-1].wait(), codes[-1]]
    finally:
        for part in parts:
            part.stop()
    counts = sum((part.counts() for part in parts), Counter[str]())
    counts["failed"] -= len(again)
    told = ", ".join(f"{counts[kind]} {kind}" for kind in _ORDER if counts[kind])
    seconds = time.monotonic() - began
    heard = f", {len(again)} heard again" if again else ""
    print(f" {told}{heard} in {seconds:.2f}s ({timedelta(seconds=int(seconds))}) ".center(80, "="))
    return next(filter(None, codes), 0)


def may_be_heard_again(failed: list[str], codes: list[int]) -> bool:
    """Whether tests that failed side by side are few, none of them from a seed, and nothing else went wrong there."""
    from_seeds = any(test.startswith(f"tests/{name}/") for test in failed for name in FROM_SEEDS)
    return 0 < len(failed) <= MOST_HEARD_AGAIN and not from_seeds and set(codes[:-1]) <= {0, _SOME_FAILED}


if __name__ == "__main__":
    sys.exit(main())
