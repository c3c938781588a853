"""The examples of the admin's guide run as they stand there, one after the other, on both brokers."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from typing import Any

from barnabas import Admin
from tests.clients.admin_work import administer, comes_to
from tests.peers import ROOT, Broker

GUIDE = (ROOT / "docs" / "guide" / "admin.md").read_text()
FOR_ALL, FOR_KAFKA = GUIDE.split("## What only Apache Kafka serves")
NAMES = ("orders", "returns", "audit", "billing", "alice")


def examples(text: str, address: str, prefix: str) -> list[str]:
    """Python's part of the guide, with names and an address of this test's own."""
    for name in NAMES:
        text = text.replace(f'"{name}', f'"{prefix}-{name}').replace(f"User:{name}", f"User:{prefix}-{name}")
    return re.findall(r"```python\n(.*?)```", text.replace("localhost:9092", address), re.DOTALL)


async def carry_out(example: str, names: dict[str, Any]) -> None:
    code = compile(example, "admin.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(code, names)
    if inspect.isawaitable(outcome):
        await outcome


def test_the_examples_run_on_both_brokers(cluster: str, topic_name: str) -> None:
    program, *rest = examples(FOR_ALL, cluster, topic_name)
    command = [sys.executable, "-W", "error", "-c", program]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (finished.stderr, finished.stdout) == ("", f"{topic_name}-orders 3\n")

    async def work(admin: Admin) -> None:
        names: dict[str, Any] = {"admin": admin}
        for example in rest:
            await carry_out(example, names)
            await comes_to(lambda: is_known(admin), True)
        assert names["planned"].keys() == {names["first"]}
        assert names["fenced"].producer_epoch == 0

    async def is_known(admin: Admin) -> bool:
        return f"{topic_name}-orders" in [topic.name for topic in await admin.topics.list()]

    administer(cluster, work)


def test_the_examples_for_kafka_run_there(kafka: Broker, topic_name: str) -> None:
    [example] = examples(FOR_KAFKA, kafka.address, topic_name)
    administer(kafka.address, lambda admin: carry_out(example, {"admin": admin}))
