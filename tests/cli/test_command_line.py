"""The `barnabas` command as people use it, against a running broker; kcat reads what it wrote and the reverse."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from barnabas import __version__
from barnabas.cli.main import VERBS
from tests import peers
from tests.cli.commands import Ok, Run, assert_one_line, run_barnabas, run_new_interpreter
from tests.peers import Broker, barnabas_command, eventually


def kcat(broker: Broker, *arguments: str, input: str = "") -> str:
    done = subprocess.run(
        [peers.kcat(), "-b", broker.address, "-q", *arguments],
        input=input,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout


# the frame


def complete(line: str) -> dict[str, str]:
    """The environment in which a shell asks for the words that a line may go on with."""
    words = str(len(line.split(" ")) - 1)
    return {"COMP_WORDS": line, "COMP_CWORD": words, "_BARNABAS_COMPLETE": "complete_bash"}


QUICK_COMMANDS: list[tuple[list[str], dict[str, str], list[str]]] = [
    (["--help"], {}, [f"\n  {verb} " for verb in VERBS]),
    (["--version"], {}, [f"barnabas {__version__}\n"]),
    ([], complete("barnabas topic d"), ["describe\n", "delete\n"]),
]


@pytest.mark.parametrize(("arguments", "environment", "told"), QUICK_COMMANDS)
def test_help_version_and_completion(arguments: list[str], environment: dict[str, str], told: list[str]) -> None:
    done = run_new_interpreter(*arguments, environment=environment)
    assert done.returncode == 0
    for part in told:
        assert part in done.stdout


@pytest.mark.proof
@pytest.mark.parametrize(("arguments", "environment", "told"), QUICK_COMMANDS)
def test_help_version_and_completion_take_less_than_150_ms(
    arguments: list[str], environment: dict[str, str], told: list[str]
) -> None:
    """Counted in the process's own time, which is the whole of it on an idle machine: it neither waits nor forks."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        test_help_version_and_completion(arguments, environment, told)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    seconds()  # compiles what is not cached yet
    assert any(seconds() < 0.150 for _ in range(30))


def test_verbs_import_nothing_heavy_before_they_work() -> None:
    heavy = {"asyncio", "uvloop", "rich", "yaml", "pyarrow", "cramjam", "prometheus_client", "sqlite3", "ssl"}
    script = f"import sys\n{''.join(f'import {verb.module}; ' for verb in VERBS.values())}\n"
    script += f"print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "words", ["topic list", "cluster health", "config describe broker all", "group list", "txn list", "context list"]
)
def test_a_new_interpreter_imports_what_a_verb_needs(broker: Broker, words: str) -> None:
    """Most tests fork a process that has imported everything."""
    environment = {"BARNABAS_BOOTSTRAP_SERVER": broker.address}
    done = run_new_interpreter(*words.split(), environment=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mistyped_verb_is_told_the_nearest_one() -> None:
    done = run_barnabas("tpoic")
    assert done.returncode == 2
    assert "Did you mean 'topic'?" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "topic list",
        "produce orders",
        "consume orders",
        "consume orders --group billing",
        "group describe billing",
        "config describe topic orders",
        "txn list",
        "bench produce orders",
        "cluster health",
    ],
)
def test_no_broker_is_one_line_that_says_what_to_do(words: str) -> None:
    address = f"127.0.0.1:{peers.free_port()}"
    done = run_barnabas(*words.split(), "-b", address)
    assert_one_line(done, f"cannot reach broker at {address}: connection refused; is it running?")


def test_a_wrong_address_is_an_error_of_usage() -> None:
    done = run_barnabas("topic", "list", "-b", "host:no-port")
    assert done.returncode == 2
    assert "'host:no-port' is not an address of the form host:port" in done.stderr


def test_a_topic_that_is_not_there_is_one_line(run: Run, topic_name: str) -> None:
    for words in (
        "consume {}",
        "consume {} --group g",
        "topic describe {}",
        "txn producers {}",
        "topic trim {} --before 1",
    ):
        done = run(*words.format(topic_name).split())
        assert_one_line(done, f"topic '{topic_name}' does not exist; `barnabas topic list` shows the topics")


# topics


def test_a_topic_is_created_listed_described_altered_and_deleted(run: Run, ok: Ok, topic_name: str) -> None:
    assert ok("topic", "create", topic_name, "-p", "3", "-c", "retention.ms=5000000") == f"created topic {topic_name}\n"
    listed = json.loads(ok("topic", "list", "-o", "json"))
    assert [row["partitions"] for row in listed if row["topic"] == topic_name] == [3]

    ok("topic", "alter", topic_name, "-p", "4", "-c", "segment.bytes=2000000", "-d", "retention.ms")
    described = json.loads(ok("topic", "describe", topic_name, "-o", "json"))
    assert described["configs"] == {"segment.bytes": "2000000"}
    assert [(part["partition"], part["end_offset"]) for part in described["partitions"]] == [(n, 0) for n in range(4)]
    assert yaml.safe_load(ok("topic", "describe", topic_name, "-o", "yaml")) == described
    table = ok("topic", "describe", topic_name)
    assert "segment.bytes=2000000" in table
    assert "REPLICAS  ISR  ELR  LAST KNOWN ELR  LOG START OFFSET  END OFFSET" in table

    assert ok("topic", "delete", topic_name) == f"deleted topic {topic_name}\n"
    assert topic_name not in ok("topic", "list")
    assert_one_line(run("topic", "describe", topic_name), f"topic '{topic_name}' does not exist")


def test_refusals_are_one_line_with_the_topic(run: Run, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "2")
    assert_one_line(run("topic", "create", topic_name), topic_name, "exists")
    assert_one_line(run("topic", "alter", topic_name, "-p", "1"), topic_name)
    assert_one_line(run("topic", "alter", topic_name, "-c", "no.such.key=1"), "no.such.key")
    assert_one_line(run("topic", "delete", "no-such-topic"), "no-such-topic", "does not exist")
    assert_one_line(run("consume", topic_name, "-p", "7"), "no partition 7")


def test_trim_drops_the_oldest_records_for_good(run: Run, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    ok("produce", topic_name, input="".join(f"{number}\n" for number in range(20)))
    assert json.loads(ok("topic", "trim", topic_name, "--before", "-5", "-o", "json")) == [
        {"topic": topic_name, "partition": 0, "log_start_offset": 15}
    ]
    assert ok("consume", topic_name) == "15\n16\n17\n18\n19\n"
    for words in ("consume {} --offset 14", "consume {} --offset 21", "topic trim {} --before 21"):
        assert_one_line(run(*words.format(topic_name).split()), f"{topic_name}-0 has no offset", "it holds 15 to 19")


# the cluster


def test_a_broker_that_is_alone_is_a_healthy_cluster(broker: Broker, run: Run, ok: Ok) -> None:
    found = json.loads(ok("cluster", "describe", "-o", "json"))
    [alone] = found["brokers"]
    assert (alone["address"], alone["state"], alone["controller"]) == (broker.address, "alive", True)
    assert ok("cluster", "health").startswith("healthy: 1 broker, ")
    assert ok("cluster", "reassign", "--dry-run") == "nothing to move: replicas are where they should be\n"
    assert_one_line(run("cluster", "reassign", "--drain", "77"), "there is no broker 77")


# produce and consume


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_reads_what_produce_wrote(broker: Broker, ok: Ok, topic_name: str, codec: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    lines = "".join(f"k{number}:value {number}\n" for number in range(100))
    summary = json.loads(ok("produce", topic_name, "-K", ":", "-H", "a=b", "-z", codec, "-o", "json", input=lines))
    assert summary == [{"topic": topic_name, "partition": 0, "records": 100, "first_offset": 0, "last_offset": 99}]
    found = kcat(broker, "-C", "-t", topic_name, "-e", "-f", "%k:%s %h %o\n")
    assert found == "".join(f"k{number}:value {number} a=b {number}\n" for number in range(100))


def test_consume_reads_what_kcat_wrote(broker: Broker, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    kcat(broker, "-P", "-t", topic_name, "-K", ":", "-H", "a=b", "-z", "lz4", input="k1:one\nk2:two\n")
    assert ok("consume", topic_name) == "one\ntwo\n"
    assert ok("consume", topic_name, "-K", "=") == "k1=one\nk2=two\n"
    template = r"{topic} {partition} {offset} {key} {value} {headers}\n"
    assert ok("consume", topic_name, "--format", template) == (
        f"{topic_name} 0 0 k1 one a=b\n{topic_name} 0 1 k2 two a=b\n"
    )


def test_places_choose_where_consume_begins(ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    old = "".join(json.dumps({"value": f"old{n}", "timestamp_ms": 1_600_000_000_000 + n}) + "\n" for n in range(5))
    ok("produce", topic_name, "--json", input=old)
    ok("produce", topic_name, input="new0\nnew1\n")
    assert ok("consume", topic_name, "--offset", "-3") == "old4\nnew0\nnew1\n"
    assert ok("consume", topic_name, "--offset", "@2h") == "new0\nnew1\n"
    assert ok("consume", topic_name, "--offset", "@1600000000004", "-n", "2") == "old4\nnew0\n"
    assert ok("consume", topic_name, "--offset", "6") == "new1\n"
    assert ok("consume", topic_name, "--offset", "end") == ""
    assert ok("consume", topic_name, "-n", "1") == "old0\n"


def test_a_wrong_place_is_an_error_of_usage(run: Run, topic_name: str) -> None:
    done = run("consume", topic_name, "--offset", "yesterday")
    assert done.returncode == 2
    assert "@2h" in done.stderr


def test_json_lines_go_round_through_consume_and_produce(broker: Broker, ok: Ok, topic_name: str) -> None:
    copy = f"{topic_name}-copy"
    for name in (topic_name, copy):
        ok("topic", "create", name, "-p", "1")
    ok("produce", topic_name, "-K", ":", "-H", "h=ü", "-Z", input="k:v\nempty:\n:nokey\n")
    printed = ok("consume", topic_name, "-o", "json")
    ok("produce", copy, "--json", input=printed)
    assert ok("consume", copy, "-o", "json").replace(copy, topic_name) == printed
    records = [json.loads(line) for line in printed.splitlines()]
    assert [(record["key"], record["value"]) for record in records] == [("k", "v"), ("empty", None), (None, "nokey")]
    assert list(yaml.safe_load_all(ok("consume", topic_name, "-o", "yaml"))) == records
    assert len(ok("consume", topic_name, "-o", "table").splitlines()) == 4


def test_every_byte_survives_the_way_through_json(ok: Ok, topic_name: str, tmp_path: Path) -> None:
    """Nulls, empty texts, bytes that are no text, headers of one name, timestamps, partitions."""
    copy = f"{topic_name}-copy"
    for name in (topic_name, copy):
        ok("topic", "create", name, "-p", "2", "-c", "retention.ms=-1")
    binary = b64encode(bytes(range(256))).decode()
    records: list[dict[str, object]] = [
        {"key": None, "value": None},
        {"key": "", "value": ""},
        {"key_base64": binary, "value_base64": binary, "timestamp_ms": 1},
        {"key": "ü\n\u2028", "value": '{"a": "\\u0000"}', "timestamp_ms": 1_600_000_000_000},
        {
            "key": "h",
            "value": "v",
            "headers": [
                {"name": "a", "value": None},
                {"name": "a", "value": ""},
                {"name": "ü", "value_base64": "/w=="},
            ],
        },
    ]
    lines = [json.dumps({"partition": number % 2, **record}) for number, record in enumerate(records)]
    ok("produce", topic_name, "--json", "--keep-partition", input="\n".join(lines))
    printed = ok("consume", topic_name, "-o", "json")
    ok("produce", copy, "--json", "--keep-partition", input=printed)
    again = ok("consume", copy, "-o", "json").replace(copy, topic_name)
    assert sorted(again.split("\n")) == sorted(printed.split("\n"))
    found = [json.loads(line) for line in printed.rstrip("\n").split("\n")]
    for number, record in enumerate(records):
        assert any(record.items() <= other.items() and other["partition"] == number % 2 for other in found), record


def test_json_is_utf_8_whatever_the_terminal_speaks(broker: Broker, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    ok("produce", topic_name, input="ü€")
    environment = {"BARNABAS_BOOTSTRAP_SERVER": broker.address, "PYTHONIOENCODING": "ascii"}
    assert '"value": "ü€"' in run_barnabas("consume", topic_name, "-o", "json", environment=environment).stdout


def test_a_line_without_its_key_stops_produce_and_names_the_line(run: Run, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    done = run("produce", topic_name, "-K", ":", input="a:1\nb2\nc:3\n")
    assert_one_line(done, "line 2", "the lines before it were sent")
    assert ok("consume", topic_name) == "1\n"


def test_produce_to_a_partition_and_consume_from_it(run: Run, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "3")
    ok("produce", topic_name, "-p", "2", "--acks", "1", "-q", input="here")
    assert ok("consume", topic_name, "-p", "2") == "here\n"
    assert ok("consume", topic_name, "-p", "0", "-p", "1") == ""
    assert_one_line(run("produce", topic_name, "-p", "9", input="x"), "no partition 9")


def test_many_lines_arrive_whole_and_in_order(ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    lines = "".join(f"line number {number}\n" for number in range(100_000))
    ok("produce", topic_name, "-z", "lz4", input=lines)
    assert ok("consume", topic_name) == lines


@contextmanager
def following(broker: Broker, topic: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        barnabas_command("consume", topic, "--follow", "-b", broker.address, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


def test_follow_prints_records_as_they_come_and_ctrl_c_ends_it_quietly(broker: Broker, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    ok("produce", topic_name, input="first\n")
    with following(broker, topic_name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        ok("produce", topic_name, input="second\n")
        assert process.stdout.readline() == "second\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert errors == ""


def test_a_closed_pipe_ends_consume_without_noise(broker: Broker, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    ok("produce", topic_name, input="x" * 1000 + "\n")
    with following(broker, topic_name) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        ok("produce", topic_name, input="more\n")
        process.wait(timeout=60)
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_lines_typed_by_hand_leave_at_once(broker: Broker, ok: Ok, topic_name: str) -> None:
    ok("topic", "create", topic_name, "-p", "1")
    producing = subprocess.Popen(
        barnabas_command("produce", topic_name, "-b", broker.address), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert producing.stdin is not None
        producing.stdin.write(b"typed\n")
        producing.stdin.flush()
        eventually(lambda: ok("consume", topic_name), "typed\n")
        producing.communicate(timeout=60)
        assert producing.returncode == 0
    finally:
        if producing.poll() is None:
            producing.kill()
            producing.communicate(timeout=60)


# files


def test_log_dump_shows_what_the_broker_wrote(broker: Broker, ok: Ok, topic_name: str) -> None:
    if not hasattr(broker, "data_dir"):
        pytest.skip("the broker's directory is not known")
    ok("topic", "create", topic_name, "-p", "1")
    ok("produce", topic_name, "-K", ":", "-z", "zstd", input="k:v\nk:w\n")
    path = str(Path(broker.data_dir, f"{topic_name}-0", "00000000000000000000.log"))
    (batch,) = [json.loads(line) for line in ok("log", "dump", path, "-o", "json").splitlines()]
    assert (batch["records"], batch["compression"], batch["problem"]) == (2, "zstd", None)
    records = [json.loads(line) for line in ok("log", "dump", "--records", path, "-o", "json").splitlines()]
    assert [(record["offset"], record["key"], record["value"]) for record in records] == [(0, "k", "v"), (1, "k", "w")]


def test_log_dump_of_a_damaged_file_shows_the_rest_and_fails(ok: Ok, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(bytes.fromhex("00000005 00000064 00000004 000000c8".replace(" ", "")))
    done = run("log", "dump", str(path))
    assert_one_line(done, "1 damaged entry")
    assert len(done.stdout.splitlines()) == 3
    assert_one_line(run("log", "dump", __file__), "is no file of a log")
