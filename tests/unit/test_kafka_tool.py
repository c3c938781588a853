"""Kafka's tools share a JVM, and nobody notices."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.peers import kafka_tool

pytestmark = pytest.mark.peers
STORAGE = "kafka.tools.StorageTool"


def test_a_tool_gives_what_it_printed() -> None:
    assert re.fullmatch(r"[\w-]{22}\n", kafka_tool(STORAGE, "random-uuid"))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((STORAGE, "info", "--config", "/nowhere"), r"ended with 1:\n.*NoSuchFileException: /nowhere"),
        (("org.apache.kafka.tools.TopicCommand", "--nonsense"), r"ended with 1:\nnonsense is not a recognized option"),
    ],
)
def test_a_tool_that_fails_fails_the_test_with_what_it_said(command: tuple[str, ...], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        kafka_tool(*command)


def test_a_tool_that_does_not_end_is_ended_and_the_next_runs(tmp_path: Path) -> None:
    never_written = tmp_path / "fifo"
    os.mkfifo(never_written)
    with pytest.raises(AssertionError, match=r"took over 0\.1 s"):
        kafka_tool(STORAGE, "info", "--config", str(never_written), timeout=0.1)
    assert kafka_tool(STORAGE, "random-uuid")
