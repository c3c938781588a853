"""Long work tells how far it is and how long it will take: on a terminal, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.commands import Ok
from tests.peers import Broker, barnabas_command

RECORDS = 20_000


def shown(arguments: list[str], stdin: Path, stdout: Path) -> str:
    """What a command writes to a terminal that is its standard error, without colours."""
    ours, theirs = pty.openpty()
    with stdin.open("rb") as given, stdout.open("wb") as taken:
        process = subprocess.Popen(
            barnabas_command(*arguments),
            stdin=given,
            stdout=taken,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        )
    os.close(theirs)
    written = b""
    try:
        with suppress(OSError):  # the way in which a terminal ends
            while chunk := os.read(ours, 4096):
                written += chunk
        assert process.wait(60) == 0, written.decode()
    finally:
        os.close(ours)
        process.kill()
        process.wait(60)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines"
    file.write_text("".join(f"line number {number}\n" for number in range(RECORDS)))
    return file


def test_a_bar_with_the_time_left_on_a_terminal(broker: Broker, ok: Ok, topic_name: str, lines: Path) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    copy, nothing = lines.with_name("copy"), Path(os.devnull)
    at = ("-b", broker.address)
    bars = {
        "sending": shown(["produce", topic_name, *at], lines, nothing),
        "reading": shown(["consume", topic_name, *at], nothing, copy),
    }
    assert copy.read_bytes() == lines.read_bytes()
    bars["sending "] = shown(["bench", "produce", topic_name, "-n", "2000", *at], nothing, nothing)
    for what, bar in bars.items():
        assert what in bar
        assert re.search(r"left +(\d:\d\d:\d\d|-:--:--)", bar), bar


def test_no_bar_elsewhere(broker: Broker, ok: Ok, topic_name: str, lines: Path) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    with lines.open("rb") as given:
        command = barnabas_command("produce", topic_name, "-q", "-b", broker.address)
        done = subprocess.run(command, stdin=given, capture_output=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
