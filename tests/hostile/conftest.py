"""One broker for all tests that only send bad requests; those that measure memory start their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.victim import Victim, attacked


@pytest.fixture(scope="session")
def _broker_for_bad_requests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    settings = {"connections.max.idle.ms": "2000", "socket.request.max.bytes": "1000000"}
    with attacked(tmp_path_factory.mktemp("hostile"), settings) as victim:
        yield victim


@pytest.fixture
def victim(_broker_for_bad_requests: Victim) -> Iterator[Victim]:
    yield _broker_for_bad_requests
    _broker_for_bad_requests.is_well()
