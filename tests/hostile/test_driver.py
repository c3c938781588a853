"""How the driver of the fuzzer deals with what gets no reply."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from barnabas.wire.messages.k03_metadata import MetadataRequest
from tests.hostile.driver import Driver
from tests.hostile.fuzzer import Sent
from tests.hostile.wire import encode_request

REQUEST = encode_request(MetadataRequest(topics=[]), 12)
GOOD = Sent(3, 12, REQUEST, len(REQUEST))
MISFRAMED = Sent(3, 12, REQUEST, 1000)


class Mute:
    """Takes connections, and says nothing until they end; then it ends them, too."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(taken,), daemon=True).start()

    def _read(self, taken: socket.socket) -> None:
        with taken:
            self.received.append(b"".join(iter(lambda: taken.recv(4096), b"")))

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def mute() -> Iterator[Mute]:
    broker = Mute()
    yield broker
    broker.close()


def test_requests_that_get_no_reply_are_counted_by_their_api(mute: Mute) -> None:
    outcome = Driver(mute.address, iter([GOOD, GOOD])).run()
    assert outcome.answered == 2
    assert outcome.stalled == {"Metadata": 2}


def test_nothing_follows_a_misframed_request_but_the_end(mute: Mute) -> None:
    outcome = Driver(mute.address, iter([MISFRAMED] * 6)).run()
    assert (outcome.answered, outcome.closed, outcome.stalled) == (6, 6, {})
    assert mute.received == [struct.pack(">i", 1000) + REQUEST] * 6
