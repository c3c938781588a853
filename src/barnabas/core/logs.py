"""Logs: one event, one line, with its facts as fields; text for people, JSON for programs.

    log = get_logger(__name__)
    log.info("log recovered", topic="orders", partition=3, dropped_bytes=17)

    2026-07-04T12:00:00.123Z INFO  storage.recovery: log recovered topic=orders partition=3 dropped_bytes=17

Underneath is the standard library's logging, so that other libraries' lines come out alike. A client's mistake is
logged with `client_mistake`: never a stack trace, and no more than a few lines of a kind in a while, or a hostile
client could fill the disk. Our own failures go to `exception`, where the stack trace is a field too. Text that a client
chose is quoted, so that it can forge neither a line nor a terminal's escape sequence.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, TextIO

from barnabas.core.seams import Clock

ROOT: Final = "barnabas"
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_COLOURS = {logging.DEBUG: "\x1b[2m", logging.INFO: "", logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m"}
_RESET = "\x1b[0m"
_RESERVED = frozenset({"time", "level", "logger", "event", "error", "trace"})


class EventLog:
    """A logger whose methods take an event, which never varies, and fields, which do."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, /, **fields: object) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._log(logging.ERROR, event, fields)

    def client_mistake(self, event: str, /, **fields: object) -> None:
        """Something that a client should not have sent; repeated events of a kind are counted instead of logged."""
        self._log(logging.WARNING, event, fields, limited=True)

    def exception(self, event: str, /, **fields: object) -> None:
        """Something that should never happen here, told where the exception is handled: with its stack trace."""
        self._log(logging.ERROR, event, fields, error=sys.exc_info()[1])

    def _log(
        self,
        level: int,
        event: str,
        fields: Mapping[str, object],
        error: BaseException | None = None,
        limited: bool = False,
    ) -> None:
        logger = self._logger
        if logger.isEnabledFor(level):
            trace = None if error is None else (type(error), error, error.__traceback__)
            logger.handle(EventRecord(logger.name, level, event, fields, trace, limited))


class EventRecord(logging.LogRecord):
    """An event with its facts. Formatters that know nothing of facts, a user's of a client say, get them as text."""

    def __init__(
        self,
        name: str,
        level: int,
        event: str,
        fields: Mapping[str, object],
        trace: tuple[type[BaseException], BaseException, TracebackType | None] | None,
        limited: bool,
    ) -> None:
        super().__init__(name, level, "", 0, event, (), trace)
        self.fields = fields
        self.limited = limited

    def getMessage(self) -> str:
        return " ".join([str(self.msg), *(f"{key}={_quoted(value)}" for key, value in self.fields.items())])


def get_logger(name: str) -> EventLog:
    return EventLog(logging.getLogger(name))


def configure(
    level: str,
    format: str,
    clock: Clock,
    *,
    stream: TextIO | None = None,
    colour: bool | None = None,
    facts: Mapping[str, object] | None = None,
) -> logging.Handler:
    """Send everything of at least `level` to `stream` (stderr), as `text` or `json`, and nowhere else.

    Colours are for terminals: by default they are on where the stream is one. `facts` are added to every line. The
    handler is returned so that whoever runs several brokers in one process can take it off again.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    if format == "json":
        handler.setFormatter(JsonFormatter(clock))
    else:
        handler.setFormatter(TextFormatter(clock, stream.isatty() if colour is None else colour))
    handler.addFilter(RateLimit(clock))
    if facts:
        handler.addFilter(_AddFacts(facts))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # what libraries say; ours has a level of its own
    logging.getLogger(ROOT).setLevel(LEVELS[level])
    return handler


class TextFormatter(logging.Formatter):
    def __init__(self, clock: Clock, colour: bool) -> None:
        super().__init__()
        self._clock = clock
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix(ROOT + ".")
        facts = [f"{key}={_quoted(value)}" for key, value in _facts(record).items()]
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            facts += [f"error={_quoted(_told(error))}", f"trace={_quoted(' < '.join(_trace(error)))}"]
        line = " ".join([_time(self._clock), f"{record.levelname:<7}", f"{name}: {_one_line(_event(record))}", *facts])
        colour = _COLOURS.get(record.levelno, "") if self._colour else ""
        return f"{colour}{line}{_RESET}" if colour else line


class JsonFormatter(logging.Formatter):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": _time(self._clock),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
        }
        document |= {f"{key}_" if key in _RESERVED else key: value for key, value in _facts(record).items()}
        if record.exc_info and record.exc_info[1]:
            document |= {"error": _told(record.exc_info[1]), "trace": _trace(record.exc_info[1])}
        return json.dumps(document, default=_plain)


class _AddFacts(logging.Filter):
    def __init__(self, facts: Mapping[str, object]) -> None:
        super().__init__()
        self._added = facts

    def filter(self, record: logging.LogRecord) -> bool:
        record.fields = {**self._added, **_facts(record)}
        return True


class RateLimit(logging.Filter):
    """Lets `burst` limited lines of a kind through in every `window_s`; the first of the next window tells the rest.

    A kind is an event of a logger: both are constants of the program, so what is remembered here stays small.
    """

    def __init__(self, clock: Clock, burst: int = 10, window_s: float = 10.0) -> None:
        super().__init__()
        self._clock = clock
        self._burst = burst
        self._window_s = window_s
        self._windows: dict[tuple[str, str], list[float]] = {}  # kind -> [end of the window, lines in it]

    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(record, "limited", False):
            return True
        now = self._clock.monotonic()
        window = self._windows.setdefault((record.name, record.msg), [now + self._window_s, 0])
        if now >= window[0]:
            suppressed = int(window[1]) - self._burst
            window[:] = [now + self._window_s, 0]
            if suppressed > 0:
                record.fields = {**_facts(record), "suppressed": suppressed}
        window[1] += 1
        return window[1] <= self._burst


def _event(record: logging.LogRecord) -> str:
    return str(record.msg) if isinstance(record, EventRecord) else record.getMessage()


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    facts: Mapping[str, object] = getattr(record, "fields", {})
    return facts


def _time(clock: Clock) -> str:
    now_ms = clock.now_ms()
    return f"{datetime.fromtimestamp(now_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"


def _plain(value: object) -> object:
    """A value that JSON can hold."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return _told(value) if isinstance(value, BaseException) else str(value)


def _quoted(value: object) -> str:
    """A value as text: as it is if that cannot be misread, else as a JSON string, which has no control characters."""
    text = value if isinstance(value, str) else str(value if isinstance(value, (int, float)) else _plain(value))
    return text if text and text.isprintable() and not any(char in text for char in ' "=\\') else json.dumps(text)


def _one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _trace(error: BaseException) -> list[str]:
    """Where an error comes from, innermost first, in one short piece per frame; what caused it follows."""
    frames = [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
    ]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return frames if cause is None else [*frames, f"caused by {_one_line(_told(cause))}", *_trace(cause)]
