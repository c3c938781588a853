"""The example of the guide to groups runs as it stands there, on Barnabas and on Apache Kafka."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.clients.group_readers import create_topic, new_group, produce
from tests.peers import ROOT

GUIDE = (ROOT / "docs" / "guide" / "groups.md").read_text()


def test_the_example_of_the_guide_runs(group_cluster: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    topic = create_topic(group_cluster, 1)
    produce(group_cluster, topic, 1, 3)
    program = example.replace("localhost:9092", group_cluster).replace('"orders"', f'"{topic}"')
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program.replace('"billing"', f'"{new_group()}"')],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.stderr == ""
    assert finished.stdout == "got 0\ngave up 0\ndone 3\n"
