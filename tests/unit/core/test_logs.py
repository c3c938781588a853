"""One event, one line, whatever the fields hold; a client can neither flood the log nor forge it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from barnabas.core import logs
from barnabas.core.logs import EventLog


class FakeClock:
    def __init__(self) -> None:
        self.time_s = 1_783_166_400.123

    def now_ms(self) -> int:
        return round(self.time_s * 1000)

    def monotonic(self) -> float:
        return self.time_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Configured = Callable[..., EventLog]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def configured(clock: FakeClock, stream: io.StringIO) -> Iterator[Configured]:
    root, ours = logging.getLogger(), logging.getLogger(logs.ROOT)
    before = root.handlers[:], root.level, ours.level

    def configure(format: str = "text", level: str = "info", stream: io.StringIO = stream) -> EventLog:
        logs.configure(level, format, clock, stream=stream)
        return logs.get_logger("barnabas.storage.log")

    yield configure
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def test_a_line_of_text_has_time_level_place_event_and_facts(configured: Configured, stream: io.StringIO) -> None:
    configured().info("log recovered", topic="orders", partition=3, ratio=0.5, epoch=None)
    assert stream.getvalue() == (
        "2026-07-04T12:00:00.123Z INFO    storage.log: log recovered topic=orders partition=3 ratio=0.5 epoch=None\n"
    )


def test_a_line_of_json_is_one_object(configured: Configured, stream: io.StringIO) -> None:
    configured("json").warning("disk slow", path="/a b", id=b"\x01\xff", error=OSError(5, "I/O"), time=4)
    assert json.loads(stream.getvalue()) == {
        "time": "2026-07-04T12:00:00.123Z",
        "level": "warning",
        "logger": "barnabas.storage.log",
        "event": "disk slow",
        "path": "/a b",
        "id": "01ff",
        "error_": "OSError: [Errno 5] I/O",
        "time_": 4,
    }


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("text", ["a\nINFO forged", "\x1b[2J", 'say "x"', "a=b", "", "\u2028", "\ud800"])
def test_a_client_s_text_cannot_forge_a_line(
    configured: Configured, stream: io.StringIO, format: str, text: str
) -> None:
    configured(format).info("connected", client_id=text)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.isascii()
    assert line.rstrip("\n").isprintable()
    told = json.loads(line)["client_id"] if format == "json" else json.loads(line.partition("client_id=")[2])
    assert told == text


def test_below_the_level_nothing_is_said(configured: Configured, stream: io.StringIO) -> None:
    log = configured(level="warning")
    log.info("quiet")
    log.debug("quieter")
    assert stream.getvalue() == ""
    log.error("loud")
    assert "ERROR" in stream.getvalue()


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_failure_of_our_own_tells_where_in_the_same_line(
    configured: Configured, stream: io.StringIO, format: str
) -> None:
    log = configured(format)
    try:
        try:
            raise OSError(28, "No space\nleft")
        except OSError as full:
            raise ValueError("cannot append") from full
    except ValueError:
        log.exception("append failed", topic="t")
    line = stream.getvalue()
    assert line.count("\n") == 1
    for piece in ("ValueError: cannot append", "test_logs.py:", "caused by OSError"):
        assert piece in line


def test_a_client_s_mistake_has_no_stack_trace_even_inside_a_handler(
    configured: Configured, stream: io.StringIO
) -> None:
    log = configured()
    try:
        raise ValueError("bad length")
    except ValueError as error:
        log.client_mistake("bad frame", peer="127.0.0.1:5", problem=error)
    assert "test_logs.py" not in stream.getvalue()
    assert 'problem="ValueError: bad length"' in stream.getvalue()


def test_repeated_mistakes_of_clients_are_counted_instead_of_logged(
    configured: Configured, stream: io.StringIO, clock: FakeClock
) -> None:
    log = configured()
    for _ in range(1000):
        log.client_mistake("bad frame", peer="x")
    log.client_mistake("bad request", peer="x")  # another kind is not silenced
    log.warning("own warning")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 12
    assert "suppressed" not in stream.getvalue()
    clock.time_s += 10
    log.client_mistake("bad frame", peer="y")
    assert stream.getvalue().splitlines()[-1].endswith("bad frame peer=y suppressed=990")
    clock.time_s += 10
    log.client_mistake("bad frame", peer="z")
    assert stream.getvalue().splitlines()[-1].endswith("bad frame peer=z")


def test_colours_are_for_terminals_only(configured: Configured, stream: io.StringIO) -> None:
    configured().warning("plain")
    assert "\x1b" not in stream.getvalue()
    terminal = Terminal()
    log = configured(stream=terminal)
    log.warning("coloured")
    assert terminal.getvalue().startswith("\x1b[33m")
    assert terminal.getvalue().endswith("\x1b[0m\n")


def test_other_libraries_lines_come_out_alike(configured: Configured, stream: io.StringIO) -> None:
    configured("json")
    logging.getLogger("somelib").warning("lost %d of %s", 3, "x")
    logging.getLogger("somelib").info("chatter")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "lost 3 of x"


def test_a_formatter_that_knows_nothing_of_facts_gets_them_as_text() -> None:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    logger = logging.getLogger("barnabas.of.a.user")
    logger.addHandler(handler)
    try:
        logs.get_logger("barnabas.of.a.user").warning(
            "records not delivered", partition="orders-3", problem="no leader"
        )
    finally:
        logger.removeHandler(handler)
    assert (
        lines.getvalue() == 'WARNING:barnabas.of.a.user:records not delivered partition=orders-3 problem="no leader"\n'
    )
