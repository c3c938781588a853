"""`barnabas group` and `consume --group` on both clusters, judged by Kafka's own tool and by confluent-kafka."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka.admin
import pytest

from tests.cli.commands import Ok, Run, assert_one_line, run_barnabas, run_on, succeed_on
from tests.peers import barnabas_command, kafka_tool

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture
def run(cluster: str) -> Run:
    return run_on(cluster)


@pytest.fixture
def ok(cluster: str) -> Ok:
    return succeed_on(cluster)


@pytest.fixture
def topic(ok: Ok, topic_name: str) -> str:
    """One partition with ten records, a second apart, the fifth of them at 1600000004000."""
    ok("topic", "create", topic_name, "-p", "1", "-c", "retention.ms=-1")
    lines = [json.dumps({"value": str(n), "timestamp_ms": 1_600_000_000_000 + n * 1000}) for n in range(10)]
    ok("produce", topic_name, "--json", input="\n".join(lines))
    return topic_name


@pytest.fixture
def committed(cluster: str, topic: str) -> Callable[[str], int | None]:
    """What a group has committed in the topic, as confluent-kafka sees it."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster})

    def ask(group: str) -> int | None:
        request = confluent_kafka.ConsumerGroupTopicPartitions(group)
        found = admin.list_consumer_group_offsets([request])[group].result(60).topic_partitions
        return next((each.offset for each in found if each.topic == topic), None)

    return ask


@contextmanager
def following(cluster: str, topic: str, group: str) -> Iterator[subprocess.Popen[str]]:
    """A member of the group that has read a record, until the end of the block."""
    command = barnabas_command("consume", topic, "--group", group, "--follow", "-b", cluster)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() != ""
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_group_goes_on_where_it_was_and_its_lag_is_what_kafkas_tool_tells(cluster: str, ok: Ok, topic: str) -> None:
    group = f"{topic}-group"
    assert ok("consume", topic, "--group", group, "-n", "4") == "0\n1\n2\n3\n"
    listed = {row["group"]: row for row in json.loads(ok("group", "list", "-o", "json"))}
    assert (listed[group]["type"], listed[group]["state"]) == ("consumer", "empty")
    found = json.loads(ok("group", "describe", group, "-o", "json"))
    expected = {"topic": topic, "partition": 0, "committed": 4, "end_offset": 10, "lag": 6, "member": None}
    assert found["partitions"] == [expected]
    told = kafka_tool(TOOL, "--bootstrap-server", cluster, "--describe", "--group", group)
    row = next(line.split() for line in told.splitlines() if line.startswith(group))
    assert row[1:6] == [topic, "0", "4", "10", "6"]

    assert ok("consume", topic, "--group", group) == "4\n5\n6\n7\n8\n9\n"
    assert "lag 0" in ok("group", "describe", group).splitlines()[0]


def test_reset_shows_where_a_group_would_go_and_goes_there_only_with_execute(
    ok: Ok, topic: str, committed: Callable[[str], int | None]
) -> None:
    group = f"{topic}-group"

    def reset(*arguments: str) -> list[tuple[int | None, int]]:
        found = json.loads(ok("group", "reset", group, *arguments, "-o", "json"))
        assert found["executed"] is ("--execute" in arguments)
        return [(row["before"], row["after"]) for row in found["partitions"]]

    assert reset("--to", "latest", "--topic", topic) == [(None, 10)]
    assert committed(group) is None
    assert reset("--to", "latest", "--topic", topic, "--execute") == [(None, 10)]
    assert committed(group) == 10
    assert reset("--to", "@1600000004000") == [(10, 4)]
    assert committed(group) == 10
    assert reset("--to", "7", "-t", topic, "-p", "0", "--execute") == [(10, 7)]
    assert reset("--shift", "-3", "--execute") == [(7, 4)]
    assert committed(group) == 4
    assert reset("--shift", "100") == [(4, 10)]
    assert reset("--to", "-2") == [(4, 8)]
    assert reset("--to", "earliest", "--execute") == [(4, 0)]
    assert committed(group) == 0
    assert ok("group", "reset", group, "--to", "end").endswith("dry run: nothing was changed; --execute does it\n")


def test_a_group_with_members_is_described_and_neither_reset_nor_deleted(
    cluster: str, run: Run, ok: Ok, topic: str, committed: Callable[[str], int | None]
) -> None:
    group = f"{topic}-group"
    with following(cluster, topic, group):
        found = json.loads(ok("group", "describe", group, "-o", "json"))
        [member] = found["members"]
        assert (found["state"], member["client"], member["partitions"]) == ("stable", "barnabas-cli", [f"{topic}-0"])
        assert [row["member"] for row in found["partitions"]] == [member["member"]]
        refused = run("group", "reset", group, "--to", "end", "--topic", topic, "--execute")
        assert_one_line(refused, f"group '{group}' has 1 member; stop its consumers first")
        assert_one_line(run("group", "delete", group), group, "stop its consumers first")
    assert ok("group", "delete", group) == f"deleted group {group}\n"
    assert committed(group) is None


def test_wrong_groups_and_offsets_are_one_line_that_says_what_to_do(run: Run, ok: Ok, topic: str) -> None:
    nobody = f"{topic}-nobody"
    assert_one_line(run("group", "describe", nobody), nobody, "`barnabas group list`")
    assert_one_line(run("group", "delete", nobody), nobody)
    assert_one_line(run("group", "reset", nobody, "--to", "end"), f"group '{nobody}' has committed nothing", "--topic")
    beyond = run("group", "reset", nobody, "--to", "11", "--topic", topic, "--execute")
    assert_one_line(beyond, f"{topic}-0 has no offset 11: it holds 0 to 9; nothing was done")
    assert_one_line(run("group", "reset", nobody, "--shift", "1", "--topic", topic), "to shift from")
    assert_one_line(run("group", "reset", nobody, "--to", "end", "--topic", nobody), f"topic '{nobody}' does not exist")


@pytest.mark.parametrize(
    "arguments", [["--to", "tomorrow"], [], ["--to", "end", "--shift", "1"], ["--to", "0", "-p", "0"]]
)
def test_a_reset_to_no_place_or_to_two_is_an_error_of_usage(arguments: list[str]) -> None:
    assert run_barnabas("group", "reset", "nobody", *arguments).returncode == 2


def test_a_group_outlives_a_topic_that_it_has_read(ok: Ok, topic: str) -> None:
    group = f"{topic}-group"
    ok("group", "reset", group, "--to", "3", "--topic", topic, "--execute")
    ok("topic", "delete", topic)
    for row in json.loads(ok("group", "describe", group, "-o", "json"))["partitions"]:  # Kafka drops it at once
        assert (row["committed"], row["end_offset"], row["lag"]) == (3, None, None)
