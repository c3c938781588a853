"""`barnabas up` and `barnabas broker`: ready in one line, refused in one line, stopped by one signal."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.cli.commands import run_barnabas, run_new_interpreter, succeed
from tests.peers import HOST, BarnabasServer, Broker, answers_metadata, barnabas_command, free_port


def refused(*arguments: str, **environment: str) -> str:
    """The one line with which a broker refuses to start."""
    done = run_barnabas(*arguments, environment=environment)
    assert done.returncode == 1, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("barnabas: ")
    assert "Traceback" not in done.stderr
    assert "ready" not in done.stdout
    return line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with BarnabasServer(tmp_path / "data", new_interpreter=True) as server:
        assert answers_metadata(server.address, 60)
        server.process.send_signal(number)
        assert server.process.wait(60) == 0
    assert (tmp_path / "data.stdout").read_text().startswith(f"ready {server.address} ")
    assert (tmp_path / "data.stdout").read_text().count("\n") == 1
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused("up", "--data-dir", str(tmp_path / "data"), "--port", str(port))
    assert str(port) in line
    assert "in use" in line


def test_a_data_directory_of_another_broker_is_one_line(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data"):
        line = refused("up", "--data-dir", str(tmp_path / "data"), "--port", "0")
    assert str(tmp_path / "data") in line


def test_a_wrong_setting_is_one_line_that_names_the_nearest(tmp_path: Path) -> None:
    line = refused("up", "--data-dir", str(tmp_path / "data"), "--port", "0", "--set", "log.retention.mss=5")
    assert "log.retention.mss;" in line
    assert "log.retention.ms" in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("settings", "partitions"), [([], 5), (["--set", "num.partitions=7"], 7)])
def test_settings_rise_from_file_over_environment_to_command_line(
    tmp_path: Path, settings: list[str], partitions: int
) -> None:
    config = tmp_path / "server.properties"
    data = tmp_path / "data"
    config.write_text(f"log.dirs={data}\nlisteners=PLAINTEXT://{HOST}:0\nnum.partitions=2\n")
    process = subprocess.Popen(
        barnabas_command("broker", "--config", str(config), "-o", "json", *settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "BARNABAS_NUM_PARTITIONS": "5"},
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert (ready["event"], ready["pid"], ready["log_dirs"]) == ("ready", process.pid, [str(data)])
        (address,) = ready["addresses"]
        for arguments in (
            ["produce", "auto", "-b", address],
            ["topic", "describe", "auto", "-o", "json", "-b", address],
        ):
            told = succeed(*arguments, input="x\n")
        assert len(json.loads(told)["partitions"]) == partitions
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_missing_configuration_file_is_one_line(tmp_path: Path) -> None:
    line = refused("broker", "--config", str(tmp_path / "none.properties"))
    assert "none.properties" in line


def test_metrics_are_served_where_asked(tmp_path: Path) -> None:
    port = free_port()
    with (
        BarnabasServer(tmp_path / "data", arguments=["--metrics-port", str(port)]),
        urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=60) as answer,
    ):
        assert b"barnabas_" in answer.read()


def test_logs_can_be_json(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path / "data", arguments=["--log-format", "json"]) as server:
        lines = server.log.read_text().splitlines()
    assert lines
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_without_a_data_directory_it_uses_one_here(tmp_path: Path) -> None:
    process = subprocess.Popen(
        barnabas_command("up", "--port", "0"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready ")
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert (tmp_path / "barnabas-data" / "meta.properties").exists()


def test_doctor_finds_that_a_broker_starts_and_that_the_cluster_answers(broker: Broker, tmp_path: Path) -> None:
    done = run_new_interpreter("doctor", "--data-dir", str(tmp_path), "-b", broker.address, "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)}
    assert findings["broker"]["status"] == "ok"
    assert findings["broker"]["detail"].startswith("started in ")
    assert {"python", "record engine", "uvloop", "sendfile", "RWF_NOWAIT", "open files", "disk space"} <= set(findings)
    assert findings["contexts"]["detail"].startswith("0 contexts in ")
    assert findings[f"cluster {broker.address}"]["status"] == "ok"
