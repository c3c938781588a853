"""The examples of the guides to transactions and to columns run as they stand there, on Barnabas and on Kafka."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.clients.consumer_topics import Source
from tests.peers import ROOT

PRINTED = {
    ("transactions", 0): "both are there\n",
    ("transactions", 1): "3 records, once\n",
    ("transactions", 2): "3 parts, together\n",
    ("columns", 0): "3 records, at offsets (range(3, 6),)\n",
}


def examples(guide: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guide" / f"{guide}.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(("guide", "number"), PRINTED)
def test_an_example_of_these_guides_runs(cluster: str, topic_name: str, guide: str, number: int) -> None:
    Source(cluster, topic_name).write([b"1", b"2", b"3"], key=b"k")
    program = examples(guide)[number].replace("localhost:9092", cluster)
    for name in ("orders", "shouts", "shouting", "payments"):
        program = program.replace(name, topic_name if name == "orders" else f"{topic_name}-{name}")
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.stderr == ""
    assert finished.stdout == PRINTED[guide, number]


def test_these_guides_have_no_other_examples() -> None:
    assert {(guide, number) for guide, _ in PRINTED for number in range(len(examples(guide)))} == set(PRINTED)
