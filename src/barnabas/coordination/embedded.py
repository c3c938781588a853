"""A metadata store in one SQLite file, for brokers that share a machine.

Format: table `state` has one row (cluster id, latest epoch and its holder, where the list begins and ends, where the
snapshot stands), `batch` a row per append, `chunk` a row per snapshot chunk. Every write is one transaction that
first takes SQLite's write lock (BEGIN IMMEDIATE), so the comparisons of epoch and index and the write are one step
for all processes.

Owner: SQLite blocks, so one thread of the session owns the connection. It works off calls from the loop and, when
there are none, polls `data_version`, which tells that another process has committed.

Crash: WAL with synchronous=FULL; a commit that returned survives a power cut, one that did not is undone whole. The
claim is a lock on `FILE.ID.lock`, which the system takes back from a dead process at once. A process may also hang
while it holds the lock, so the holder's loop keeps raising a counter in that file, and whoever has seen it stand
still for `claim_timeout_s` on its own clock may take the epoch over; the store then refuses the hung one by its
epoch.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.coordination.store import (
    MAX_APPEND_BYTES,
    Answer,
    Batch,
    Claim,
    Done,
    Refusal,
    Refused,
    Snapshot,
    StoreUnavailable,
    Trimmed,
    Unknown,
    check_append,
    pack,
    unpack,
)
from barnabas.core import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.core.seams import Clock

T = TypeVar("T")
_log = logs.get_logger(__name__)

FORMAT = 1
BUSY_TIMEOUT_S = 5.0
POLL_S = 0.05
CLAIM_TIMEOUT_S = 3.0
_LOCK_ATTEMPTS = 10
_WAL_RETRY_S = 0.01

_SCHEMA = """
CREATE TABLE state (
  cluster_id TEXT, epoch INTEGER NOT NULL, holder INTEGER,
  first_index INTEGER NOT NULL, next_index INTEGER NOT NULL, snapshot_index INTEGER
);
CREATE TABLE batch (
  first INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, append_id BLOB NOT NULL, records BLOB NOT NULL
);
CREATE TABLE chunk (number INTEGER PRIMARY KEY, data BLOB NOT NULL);
INSERT INTO state VALUES (NULL, 0, NULL, 0, 0, NULL);
"""


class EmbeddedStore:
    def __init__(
        self,
        path: str,
        broker_id: int,
        clock: Clock,
        *,
        poll_s: float = POLL_S,
        claim_timeout_s: float = CLAIM_TIMEOUT_S,
    ) -> None:
        self.path = path
        self.broker_id = broker_id
        self._clock = clock
        self._poll_s = poll_s
        self._claim_timeout_s = claim_timeout_s
        self._changed = asyncio.Event()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"metadata-store-{broker_id}", daemon=True)
        self._lock_fd = -1
        self._ticks = 0
        self._tick_timer: asyncio.TimerHandle | None = None
        # The thread's own:
        self._data_version = -1
        self._holder_ticks: tuple[int, bytes, float] | None = None  # holder, its counter, when that was first seen
        self._claim_was_free = False

    # The session

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock_fd = await _take_lock(self._lock_path(self.broker_id))
        try:
            self._db = sqlite3.connect(self.path, BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            self._thread.start()
            while not await self._is_ready():
                pass  # it has waited already, for as long as SQLite waits for a lock
        except BaseException as error:
            await self.close()
            if isinstance(error, sqlite3.Error):
                raise StoreUnavailable(f"{self.path}: {error}") from error
            raise
        self._tick()
        self._changed.set()

    async def _is_ready(self) -> bool:
        """False if somebody else has locked the file."""
        try:
            await self._call(self._prepare)
        except StoreUnavailable as error:
            cause = error.__cause__
            if not isinstance(cause, sqlite3.OperationalError) or cause.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            _log.warning("waiting for the metadata file", problem=str(error))
            return False
        return True

    async def close(self) -> None:
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        if self._thread.is_alive():
            self._calls.put(None)
            await self._loop.run_in_executor(None, self._thread.join)
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # The contract

    async def cluster_id(self, proposed: str) -> str:
        return await self._call(self._cluster_id, proposed)

    async def claim(self) -> Claim:
        return await self._call(self._claim)

    async def campaign(self, after_epoch: int, gone: int | None = None) -> int | None:
        return await self._call(self._campaign, after_epoch, gone)

    async def append(self, epoch: int, index: int, append_id: bytes, records: Sequence[bytes]) -> Answer:
        check_append(records)
        return await self._write(self._append, epoch, index, append_id, tuple(records))

    async def read(self, from_index: int) -> list[Batch] | Trimmed:
        return await self._call(self._read, from_index)

    async def snapshot(self, epoch: int, index: int, chunks: Sequence[bytes]) -> Answer:
        return await self._write(self._snapshot, epoch, index, tuple(chunks))

    async def latest_snapshot(self) -> Snapshot | None:
        return await self._call(self._latest_snapshot)

    async def watch(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    # From the loop to the thread and back

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        future: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = function(*arguments)
            except sqlite3.Error as error:
                unavailable = StoreUnavailable(f"{self.path}: {error}")
                unavailable.__cause__ = error
                self._tell(_settle, future, None, unavailable)
            except BaseException as error:
                self._tell(_settle, future, None, error)
            else:
                self._tell(_settle, future, result, None)

        self._calls.put(run)
        return await future

    async def _write(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """A write whose commit fails may have been done all the same."""
        try:
            return await self._call(function, *arguments)
        except StoreUnavailable as error:
            return Unknown(str(error))

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _work(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=self._poll_s)
            except queue.Empty:
                self._poll()
                continue
            if call is None:
                break
            call()
        self._db.close()

    def _poll(self) -> None:
        try:
            (version,) = self._db.execute("PRAGMA data_version").fetchone()
            is_free = self._claim().holder is None
        except sqlite3.Error:
            return  # what cannot be read now is seen at the next poll
        if version != self._data_version or (is_free and not self._claim_was_free):
            self._tell(self._changed.set)
        self._data_version, self._claim_was_free = version, is_free

    # In the thread: each of these is one transaction

    def _use_wal(self) -> None:
        """SQLite does not wait for others by itself when it changes the mode of a new file, so two may collide here."""
        deadline = self._clock.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError:
                if self._clock.monotonic() >= deadline:
                    raise
                time.sleep(_WAL_RETRY_S)

    def _prepare(self) -> None:
        self._use_wal()
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA fullfsync=1")  # macOS: there a plain fsync stops at the drive's cache
        with self._transaction():
            (found,) = self._db.execute("PRAGMA user_version").fetchone()
            if found == 0:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version={FORMAT}")
            elif found != FORMAT:
                raise ValueError(
                    f"{self.path} has metadata format {found}, this version knows {FORMAT}; upgrade Barnabas"
                )

    def _cluster_id(self, proposed: str) -> str:
        with self._transaction():
            self._db.execute("UPDATE state SET cluster_id = ? WHERE cluster_id IS NULL", (proposed,))
            cluster_id: str = self._state("cluster_id")[0]
            return cluster_id

    def _claim(self) -> Claim:
        epoch, holder = self._state("epoch, holder")
        return Claim(epoch, holder if holder == self.broker_id or self._is_alive(holder) else None)

    def _campaign(self, after_epoch: int, gone: int | None) -> int | None:
        with self._transaction():
            claim = self._claim()
            if claim.epoch != after_epoch or claim.holder not in (None, self.broker_id, gone):
                return None
            self._db.execute("UPDATE state SET epoch = ?, holder = ?", (after_epoch + 1, self.broker_id))
            return after_epoch + 1

    def _append(self, epoch: int, index: int, append_id: bytes, records: tuple[bytes, ...]) -> Answer:
        with self._transaction():
            latest_epoch, next_index = self._state("epoch, next_index")
            if epoch != latest_epoch:
                return Refused(Refusal.STALE_EPOCH)
            if index != next_index:
                return Refused(Refusal.INDEX_MOVED)
            self._db.execute("INSERT INTO batch VALUES (?, ?, ?, ?)", (index, epoch, append_id, pack(records)))
            self._db.execute("UPDATE state SET next_index = ?", (index + len(records),))
            return Done(index + len(records))

    def _read(self, from_index: int) -> list[Batch] | Trimmed:
        with self._transaction("DEFERRED"):
            (first_index,) = self._state("first_index")
            if from_index < first_index:
                return Trimmed(first_index)
            batches = []
            size = 0
            rows = self._db.execute("SELECT * FROM batch WHERE first >= ? ORDER BY first", (from_index,))
            for index, epoch, append_id, records in rows:
                batches.append(Batch(index, epoch, append_id, unpack(records)))
                size += len(records)
                if size >= MAX_APPEND_BYTES:
                    break
            return batches

    def _snapshot(self, epoch: int, index: int, chunks: tuple[bytes, ...]) -> Answer:
        with self._transaction():
            latest_epoch, first_index, next_index = self._state("epoch, first_index, next_index")
            if epoch != latest_epoch:
                return Refused(Refusal.STALE_EPOCH)
            if not first_index <= index <= next_index:
                return Refused(Refusal.INDEX_MOVED)
            self._db.execute("DELETE FROM chunk")
            self._db.executemany("INSERT INTO chunk VALUES (?, ?)", enumerate(chunks))
            self._db.execute("DELETE FROM batch WHERE first < ?", (index,))
            self._db.execute("UPDATE state SET first_index = ?, snapshot_index = ?", (index, index))
            return Done(next_index)

    def _latest_snapshot(self) -> Snapshot | None:
        with self._transaction("DEFERRED"):
            (index,) = self._state("snapshot_index")
            if index is None:
                return None
            return Snapshot(
                index, tuple(data for (data,) in self._db.execute("SELECT data FROM chunk ORDER BY number"))
            )

    def _state(self, columns: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._db.execute(f"SELECT {columns} FROM state").fetchone()
        return row

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        self._db.execute(f"BEGIN {kind}")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    # Who is alive

    def _lock_path(self, broker_id: int) -> str:
        return f"{self.path}.{broker_id}.lock"

    def _tick(self) -> None:
        """Show that this loop still turns."""
        self._ticks += 1
        os.pwrite(self._lock_fd, b"%d\n" % self._ticks, 0)
        self._tick_timer = self._loop.call_later(self._claim_timeout_s / 4, self._tick)

    def _is_alive(self, holder: int | None) -> bool:
        """Whether the holder's process lives and its counter has moved within the time-out."""
        if holder is None:
            return False
        try:
            fd = os.open(self._lock_path(holder), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False  # nobody keeps it: the process is gone
        except BlockingIOError:
            ticks = os.pread(fd, 32, 0)
        finally:
            os.close(fd)
        now = self._clock.monotonic()
        seen = self._holder_ticks
        if seen is None or seen[:2] != (holder, ticks):
            self._holder_ticks = seen = (holder, ticks, now)
        return now - seen[2] < self._claim_timeout_s


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # the caller was cancelled
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


async def _take_lock(path: str) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            await asyncio.sleep(0.01)  # somebody else's look at it may be in the way for a moment
    os.close(fd)
    raise StoreUnavailable(f"{path} is locked: another process runs under this broker id; stop it first")
