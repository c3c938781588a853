"""The examples of the consumer's guide run as they stand there, on Barnabas and on Apache Kafka."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.clients.consumer_topics import Source
from tests.peers import ROOT

GUIDE = (ROOT / "docs" / "guide" / "consumer.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
PRINTED = [" 0 2 b'k' b'the last one'\n", "3 rows\n", "3 results\n", "0 1\n1 2\n2 is no JSON: b'the last one'\n"]


@pytest.mark.parametrize("number", range(4))
def test_an_example_of_the_guide_runs(cluster: str, topic_name: str, number: int) -> None:
    Source(cluster, topic_name).write([b"1", b"2", b"the last one"], key=b"k")
    program = EXAMPLES[number].replace("localhost:9092", cluster).replace("orders", topic_name)
    for group in ("billing", "ledger"):
        program = program.replace(f'"{group}"', f'"{topic_name}-{group}"')
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.stderr == ""
    assert finished.stdout.endswith(PRINTED[number])


def test_the_guide_has_no_other_examples() -> None:
    assert len(EXAMPLES) == len(PRINTED)
