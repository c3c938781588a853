"""Kafka's command-line tools, one after the other in one JVM: most of what a tool costs is the start of its JVM."""

from __future__ import annotations

import atexit
import struct
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, NamedTuple


class Ran(NamedTuple):
    returncode: int
    printed: str


class ToolRunner:
    """`tests/ToolRunner.java` in a JVM that lives until the tests end, or until a tool does not end in its time."""

    def __init__(self, command: Sequence[str]):
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._busy = threading.Lock()
        atexit.register(self.close)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, words: Sequence[str], input: str, timeout: float) -> Ran:
        with self._busy:
            watch = threading.Timer(timeout, self._process.kill)
            watch.start()
            try:
                commands, answers = self._pipes()
                commands.write(struct.pack(">i", len(words)) + b"".join(map(_sized, (*words, input))))
                commands.flush()
                printed = b"".join(iter(lambda: answers.read(_number(answers)), b""))
                return Ran(_number(answers), printed.decode())
            except (OSError, struct.error):
                self.close()
                raise AssertionError(f"{' '.join(words)} took its JVM with it, or took over {timeout} s") from None
            finally:
                watch.cancel()

    def close(self) -> None:
        """It ends when nobody can ask for more, whatever threads a tool has left."""
        atexit.unregister(self.close)
        for pipe in self._pipes():
            pipe.close()
        self._process.kill()
        self._process.wait(10)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


def _number(answers: IO[bytes]) -> int:
    number: int = struct.unpack(">i", answers.read(4))[0]
    return number


def _sized(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">i", len(encoded)) + encoded
