"""Exactly once whatever happens: batches under drivers and tasks that die at random, all from one seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from barnabas.client.admin.transactions import Transactions
from barnabas.spark import decisions, two_phases
from barnabas.spark.decisions import Decisions
from barnabas.spark.task_writer import Written
from barnabas.sync import Admin
from tests.peers import Broker
from tests.spark.written_topics import Driver, committed, rows, task

BATCHES = 10
STEPS: list[tuple[Any, str]] = [
    (decisions, "find_decision"),
    (two_phases, "_check_open"),
    (Decisions, "write"),
    (Transactions, "end_many"),
    (two_phases, "_abort_strays"),
]


class Died(BaseException):
    """The driver is gone."""


def may_die(random: Random, step: Callable[..., Any], chance: float) -> Callable[..., Any]:
    """A step that the driver does not always survive; where it is about many things, it may have done some of them."""

    async def mortal(*args: Any, **options: Any) -> Any:
        if random.random() < chance:
            if step.__name__ == "end_many":
                owner, transactions = args
                await step(owner, random.sample(transactions, random.randint(0, len(transactions))), **options)
            elif random.random() < 0.5:
                await step(*args, **options)
            raise Died
        return await step(*args, **options)

    return mortal


def attempts(random: Random, driver: Driver, batch: int, values: list[str]) -> list[Written]:
    """The tasks of a batch, cut at random; some are tried twice, and Spark listens to either attempt."""
    cuts = sorted(random.randint(0, len(values)) for _ in range(random.randint(0, 3)))
    parts = [values[start:end] for start, end in zip([0, *cuts], [*cuts, len(values)])]
    writer = driver.stream_writer()
    messages = []
    for partition, part in enumerate(parts):
        tried = []
        for attempt in range(random.choice([1, 1, 2])):
            with task(partition, attempt, batch):
                tried.append(writer.write(rows(*random.sample(part, len(part)))))
        messages.append(random.choice(tried))
    return messages


@pytest.mark.parametrize(("cluster", "seed"), [("spark_broker", 1), ("spark_broker", 2), ("apache_kafka", 3)])
def test_every_row_is_there_once_after_any_crashes(
    request: pytest.FixtureRequest, cluster: str, topic_name: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    broker: Broker = request.getfixturevalue(cluster)
    with Admin(broker.address) as admin:
        admin.topics.create(topic_name, partitions=3)
    driver = Driver(broker.address, topic_name, controlTopic=f"{topic_name}-control")
    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, may_die(random, getattr(owner, name), chance=0.12))
    deaths = 0
    expected: list[bytes] = []
    for batch in range(BATCHES):
        values = [f"{batch}-{number}" for number in range(random.randint(0, 9))]
        expected += [value.encode() for value in values]
        is_done = False
        while not is_done:
            try:
                driver.commit(batch, attempts(random, driver, batch, values))
                is_done = random.random() < 0.8  # else it dies before Spark has noted it
            except Died:
                deaths += 1
    assert deaths >= BATCHES / 2
    assert committed(broker.address, topic_name, len(expected)) == sorted(expected)
