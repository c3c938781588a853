"""The outside world as a broker sees it.

Clock, disk, network and executor are arguments, never imports, so that the very same broker runs on the real machine
and in a simulation that owns time, loses power and cuts connections. Randomness is a `random.Random` that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Buffer  # type: ignore[attr-defined]  # Python 3.12's name for the buffer protocol

T = TypeVar("T")


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970: for timestamps in records, never for measuring."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for time-outs and latencies."""
        ...


class File(Protocol):
    """One open file. Reads are positional; the only write is at the end, as befits a log."""

    path: str

    def size(self) -> int: ...

    def append(self, data: Buffer) -> int:
        """Write all of `data`, which is made of bytes, at the end and return where it begins.

        On an error the file keeps its old size.
        """
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once everything that was appended would survive a power cut."""
        ...

    def fileno(self) -> int:
        """The descriptor that `sendfile` takes."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Whether the range can be read without waiting for the device; True where that cannot be told."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """The file system below a broker. Paths are absolute strings. Every call may raise OSError."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def read_bytes(self, path: str) -> bytes: ...

    def replace(self, path: str, data: bytes) -> None:
        """Put `data` at `path` so that a crash leaves the old content or the new, and the new survives a power cut."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory survive a power cut."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """The bytes of the volume that a path lies on, and how many of them are free."""
        ...

    def lock(self, path: str) -> Callable[[], None] | None:
        """Take an exclusive lock that dies with the process; the call that releases it, or None if another holds it."""
        ...


class Socket(Protocol):
    """A non-blocking stream. Calls that cannot go on now raise BlockingIOError, broken ones OSError."""

    def recv_into(self, buffer: memoryview) -> int:
        """Bytes received; 0 once the peer has closed."""
        ...

    def send(self, data: Buffer) -> int:
        """Bytes taken."""
        ...

    def send_more(self, data: Buffer) -> int:
        """The same, where the rest of the message follows at once, so that a short packet may wait for it."""
        ...

    def sendfile(self, file: File, position: int, size: int) -> int:
        """Send a range of a file, without copying it through the process where the system can."""
        ...

    def close(self) -> None: ...


class Listener(Protocol):
    host: str
    port: int

    def close(self) -> None: ...


class Network(Protocol):
    """Sockets, and the call-backs that tell when one is ready. `None` takes a call-back away."""

    def listen(self, host: str, port: int, on_accept: Callable[[Socket, str], None]) -> Listener:
        """Accept connections from now on; port 0 picks a free one. The string names the peer, for logs."""
        ...

    async def connect(self, host: str, port: int) -> Socket: ...

    def on_readable(self, socket: Socket, callback: Callable[[], None] | None) -> None: ...

    def on_writable(self, socket: Socket, callback: Callable[[], None] | None) -> None: ...

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back at the end of this turn: once the sockets that are ready now have had their call-backs."""
        ...


class Executor(Protocol):
    """Where blocking work goes: threads in a real broker, the same loop in a simulation."""

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]: ...
