"""A judge that is absent is told of, and in CI it is missed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import peers

ABSENT: list[tuple[Callable[[], object], str]] = [
    (peers.kcat, "install kcat"),
    (peers.java, "openjdk-17-jre-headless"),
    (peers.kafka_jars, "make peers"),
]


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("BARNABAS_TEST_WITHOUT_PEERS", raising=False)
    monkeypatch.setattr(peers, "KAFKA_JARS", tmp_path / "kafka")


@pytest.mark.parametrize(("find", "advice"), ABSENT)
def test_an_absent_peer_skips_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, find: Callable[[], object], advice: str
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=advice):
        find()


@pytest.mark.parametrize(("find", "advice"), ABSENT)
def test_in_ci_an_absent_peer_fails(monkeypatch: pytest.MonkeyPatch, find: Callable[[], object], advice: str) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=advice):
        find()


def test_a_server_that_dies_at_once_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = peers.Server(["/bin/sh", "-c", "echo no room left >&2; exit 3"], log, log)
    with pytest.raises(AssertionError, match=r"ended with 3(.|\n)*no room left"):
        server.wait_until(lambda: False, timeout=10)
