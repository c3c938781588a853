"""Every example runs as it is, and prints what it promises."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.peers import ROOT

ENDS_WITHIN_S = 60


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_records_are_produced_and_consumed(cluster: str, topic_name: str) -> None:
    assert run("produce", cluster, topic_name) == (
        "record 1 is in partition 0 at offset 0\n99 more records up to offset 99\n"
    )
    assert run("consume", cluster, topic_name) == f"the orders come to {20 + 99 * 5}\n"


def test_a_worker_does_what_is_there_and_leaves_its_group_at_ctrl_c(cluster: str, topic_name: str) -> None:
    run("produce", cluster, topic_name)
    command = [sys.executable, str(ROOT / "examples" / "group_worker.py"), cluster, topic_name, topic_name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            lines = [worker.stdout.readline() for _ in range(101)]
            worker.send_signal(signal.SIGINT)
            rest, errors = worker.communicate(timeout=ENDS_WITHIN_S)
        finally:
            worker.kill()
    assert lines[0] == f"got {topic_name}-0\n"
    assert lines[1] == f'{topic_name}-0 at 0: {{"order":1,"amount":20}}\n'
    assert len(lines) == 101
    assert (rest, errors) == ("left the group\n", "")


def test_columns_come_back_as_data_frames(cluster: str, topic_name: str) -> None:
    printed = run("columns_to_pandas", cluster, topic_name).splitlines()
    assert "sensor 0" in printed[1]
    assert printed[1].endswith("99990")
    assert len(printed) == 12


def test_a_cluster_is_looked_after(cluster: str, topic_name: str) -> None:
    printed = run("admin", cluster, topic_name).splitlines()
    assert printed[0] == f"topic '{topic_name}' has 3 partitions"
    assert printed[1].startswith("refused (for good): ")
    assert topic_name in printed[1]
