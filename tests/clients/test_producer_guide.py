"""The examples of the producer's guide run as they stand there, on Barnabas and on Apache Kafka."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from barnabas import Producer
from tests.peers import ROOT

GUIDE = (ROOT / "docs" / "guide" / "producer.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
PRINTED = ["{topic} 0 0\n", "True\n"]


@pytest.mark.parametrize(("example", "printed"), [*zip(EXAMPLES, PRINTED, strict=True)], ids=["first", "posts"])
def test_an_example_of_the_guide_runs(cluster: str, topic_name: str, example: str, printed: str) -> None:
    program = example.replace("localhost:9092", cluster).replace("orders", topic_name)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.stdout) == ("", printed.format(topic=topic_name))


def test_the_guide_tells_of_every_option() -> None:
    told = set(re.findall(r"`(\w+)`", GUIDE.partition("## Options")[2]))
    parameters = inspect.signature(Producer).parameters.values()
    assert {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY} <= told
