"""A metadata store in ZooKeeper, for brokers on many machines.

Format: everything is below `CHROOT/barnabas`, which names the format. Small nodes hold JSON, for an operator's eyes.

    epoch            its *version* is the latest epoch that anybody won; holds who won it
    controller       ephemeral: the broker that holds the claim, and its epoch
    log              where the list ends
    log/INDEX        one append: epoch, append id, records; INDEX is that of its first record, in 20 digits
    snapshot         the published snapshot: its index, its node below `snapshots`, how many chunks
    snapshots/N/I    one chunk
    cluster          the name of the cluster

Every write is one transaction of ZooKeeper's that also checks the version of `epoch`, and moves `log` or `snapshot` on
from the version that was read: that is the comparison of epoch and index.

Crash: what ZooKeeper has answered, a majority of its servers has on disk. A snapshot that was not published, and what
a published one was to trim, is removed with the next. A connection that breaks during a write leaves its outcome
unknown. A session that ends takes `controller` with it, so that others may win the next epoch; the claim does not come
back with the connection, one campaigns again.
"""

from __future__ import annotations

import asyncio
import json
import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from barnabas.coordination.store import (
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
from barnabas.coordination.zookeeper_session import OUTCOMES, Denied, Request, ZooKeeperSession
from barnabas.core import logs

FORMAT = 1
SESSION_TIMEOUT_S = 6.0
_PIPELINED = 100  # kazoo's own wake-up blocks beyond some 250 requests
_DELETES_PER_TRANSACTION = 500
_RETRY_S = 0.1
_BATCH_HEADER = struct.Struct(">qH")  # epoch, length of the append id

_log = logs.get_logger(__name__)


class _Tail(NamedTuple):
    """Where the list ends, and the version of the node that says so."""

    next_index: int
    version: int


class ZooKeeperStore:
    """`connect` is host:port,host:port/chroot; `auth` is user:password, and makes the nodes that user's alone."""

    def __init__(
        self,
        connect: str,
        broker_id: int,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        request_timeout_s: float | None = None,
        auth: str | None = None,
    ) -> None:
        self.broker_id = broker_id
        self._session = ZooKeeperSession(
            connect,
            self._event,
            session_timeout_s=session_timeout_s,
            request_timeout_s=request_timeout_s or session_timeout_s,
            auth=auth,
        )
        self._root = f"{self._session.chroot}/barnabas"
        self._epoch_path, self._controller_path, self._log_path, self._pointer_path = (
            f"{self._root}/{name}" for name in ("epoch", "controller", "log", "snapshot")
        )
        self._watched = {self._epoch_path, self._controller_path, self._log_path}
        self._unarmed = set(self._watched)
        self._changed = asyncio.Event()
        self._won_epoch = -1
        self._seen_epoch = -1
        self._tail: _Tail | None = None
        self._starts: list[int] = []  # of batches, as last listed

    # The session

    async def open(self) -> None:
        try:
            await self._session.open()
            while True:
                if await self._is_prepared():
                    break
                await asyncio.sleep(_RETRY_S)
        except BaseException:
            await self.close()
            raise
        self._changed.set()

    async def close(self) -> None:
        await self._session.close()

    async def _is_prepared(self) -> bool:
        """Look for the nodes, and make them all at once if they are not there. False if ZooKeeper went away."""
        try:
            (found,) = await self._ask(_get(self._root))
            if isinstance(found, NoNodeError):
                await self._ask(lambda zk: zk.ensure_path_async(self._session.chroot or "/"))
                await self._commit(
                    _create(self._root, _json(format=FORMAT)),
                    _create(self._epoch_path, _json(holder=None)),
                    _create(self._log_path, _json(next_index=0)),
                    _create(self._pointer_path, _json(index=0, node=None, chunks=0)),
                    _create(f"{self._root}/snapshots"),
                )
                (found,) = await self._ask(_get(self._root))
        except Denied:
            raise
        except StoreUnavailable as error:
            _log.warning("ZooKeeper out of reach, trying again", problem=str(error))
            return False
        found_format = _facts(found)["format"]
        if found_format != FORMAT:
            raise StoreUnavailable(
                f"{self._root} in ZooKeeper at {self._session.hosts} has metadata format {found_format}, this version "
                f"knows {FORMAT}; upgrade Barnabas or choose another path in zookeeper.connect"
            )
        return True

    # The claim

    async def cluster_id(self, proposed: str) -> str:
        path = f"{self._root}/cluster"
        _, found = await self._ask(_create_now(path, _json(id=proposed)), _get(path))
        cluster_id: str = _facts(found)["id"]
        return cluster_id

    async def claim(self) -> Claim:
        epoch, controller = await self._ask(_get(self._epoch_path), _get(self._controller_path))
        if isinstance(controller, NoNodeError):
            return Claim(epoch[1].version, None)
        return Claim(**_facts(controller))

    async def campaign(self, after_epoch: int) -> int | None:
        won = after_epoch + 1
        win = (
            _set(self._epoch_path, _json(holder=self.broker_id), after_epoch),
            _create(self._controller_path, _json(epoch=won, holder=self.broker_id), ephemeral=True),
        )
        while True:
            (controller,) = await self._ask(_get(self._controller_path))
            if isinstance(controller, NoNodeError):
                outcomes = await self._commit(*win)
            elif _facts(controller)["holder"] == self.broker_id:  # this session's, or an earlier one's that is over
                outcomes = await self._commit(win[0], _delete(self._controller_path), win[1])
            else:
                return None
            if not isinstance(outcomes[0], Exception):
                self._won_epoch = won
                return won
            if isinstance(outcomes[0], BadVersionError):
                return None

    # The list

    async def append(self, epoch: int, index: int, append_id: bytes, records: Sequence[bytes]) -> Answer:
        check_append(records)
        try:
            return await self._append(Batch(index, epoch, append_id, tuple(records)))
        except StoreUnavailable as error:
            self._tail = None
            return Unknown(str(error))

    async def _append(self, batch: Batch) -> Answer:
        while True:
            if self._tail is None or self._tail.next_index != batch.index:
                refused = await self._look(batch.epoch, batch.index)
                if refused is not None:
                    return refused
            assert self._tail is not None
            checked, moved, created = await self._commit(
                _check(self._epoch_path, batch.epoch),
                _set(self._log_path, _json(next_index=batch.next_index), self._tail.version),
                _create(self._batch_path(batch.index), _encode(batch)),
            )
            if not isinstance(created, Exception):
                self._tail = _Tail(batch.next_index, moved.version)
                return Done(batch.next_index)
            self._tail = None
            if isinstance(checked, BadVersionError):
                return Refused(Refusal.STALE_EPOCH)
            if isinstance(created, NodeExistsError):
                raise StoreUnavailable(f"{self._batch_path(batch.index)} in ZooKeeper lies beyond the end of the list")

    async def _look(self, epoch: int, index: int) -> Refused | None:
        latest, log = await self._ask(_get(self._epoch_path), _get(self._log_path))
        self._tail = _Tail(_facts(log)["next_index"], log[1].version)
        if latest[1].version != epoch:
            return Refused(Refusal.STALE_EPOCH)
        return None if self._tail.next_index == index else Refused(Refusal.INDEX_MOVED)

    async def read(self, from_index: int) -> list[Batch] | Trimmed:
        while True:
            pointer, log, found = await self._ask(
                _get(self._pointer_path), _get(self._log_path), _get(self._batch_path(from_index))
            )
            first_index, next_index = _facts(pointer)["index"], _facts(log)["next_index"]
            if from_index < first_index:
                return Trimmed(first_index)
            if from_index >= next_index:
                return []
            if not isinstance(found, NoNodeError):
                batch = _decode(from_index, found[0])
                if batch.next_index >= next_index:
                    return [batch]
            starts = await self._starts_from(from_index)
            batches = await self._ask(*(_get(self._batch_path(start)) for start in starts))
            if not any(isinstance(batch, NoNodeError) for batch in batches):
                return [_decode(start, data) for start, (data, _) in zip(starts, batches)]
            self._starts = []  # it was trimmed in between

    async def _starts_from(self, index: int) -> list[int]:
        """Where the next batches begin. The listing is long, so it is kept until it has been read to its end."""
        position = bisect_left(self._starts, index)
        if position == len(self._starts):
            self._starts = await self._list()
            position = bisect_left(self._starts, index)
        return self._starts[position : position + _PIPELINED]

    async def _list(self) -> list[int]:
        (names,) = await self._ask(_children(self._log_path))
        return sorted(map(int, names))

    # Snapshots

    async def snapshot(self, epoch: int, index: int, chunks: Sequence[bytes]) -> Answer:
        try:
            return await self._snapshot(epoch, index, chunks)
        except StoreUnavailable as error:
            return Unknown(str(error))

    async def _snapshot(self, epoch: int, index: int, chunks: Sequence[bytes]) -> Answer:
        latest, pointer, log = await self._ask(_get(self._epoch_path), _get(self._pointer_path), _get(self._log_path))
        next_index = _facts(log)["next_index"]
        if latest[1].version != epoch:
            return Refused(Refusal.STALE_EPOCH)
        if not _facts(pointer)["index"] <= index <= next_index:
            return Refused(Refusal.INDEX_MOVED)
        (path,) = await self._ask(_create_now(f"{self._root}/snapshots/", sequence=True))
        node = path.rpartition("/")[2]
        for number, chunk in enumerate(chunks):
            await self._ask(_create_now(f"{path}/{number}", chunk))
        checked, moved = await self._commit(
            _check(self._epoch_path, epoch),
            _set(self._pointer_path, _json(index=index, node=node, chunks=len(chunks)), pointer[1].version),
        )
        if isinstance(checked, BadVersionError):
            return Refused(Refusal.STALE_EPOCH)
        if isinstance(moved, Exception):
            return Refused(Refusal.INDEX_MOVED)
        await self._trim(epoch, index, node)
        return Done(next_index)

    async def _trim(self, epoch: int, index: int, kept: str) -> None:
        """Remove what the snapshot stands for, and all other snapshots, but none of a later controller's."""
        still_wins = _check(self._epoch_path, epoch)
        doomed = [self._batch_path(start) for start in await self._list() if start < index]
        snapshots = f"{self._root}/snapshots"
        (nodes,) = await self._ask(_children(snapshots))
        for path in (f"{snapshots}/{node}" for node in nodes if node != kept):
            (chunks,) = await self._ask(_children(path))
            doomed += [*(f"{path}/{chunk}" for chunk in chunks), path]
        for some in range(0, len(doomed), _DELETES_PER_TRANSACTION):
            await self._commit(still_wins, *map(_delete, doomed[some : some + _DELETES_PER_TRANSACTION]))

    async def latest_snapshot(self) -> Snapshot | None:
        while True:
            (found,) = await self._ask(_get(self._pointer_path))
            pointer = _facts(found)
            if pointer["node"] is None:
                return None
            path = f"{self._root}/snapshots/{pointer['node']}"
            chunks = await self._ask(*(_get(f"{path}/{number}") for number in range(pointer["chunks"])))
            if not any(isinstance(chunk, NoNodeError) for chunk in chunks):
                return Snapshot(pointer["index"], tuple(data for data, _ in chunks))

    # Watching

    async def watch(self) -> None:
        """Watches are armed before this returns, so that whoever looks then misses nothing afterwards."""
        await self._changed.wait()
        self._changed.clear()
        unarmed, self._unarmed = self._unarmed, set()
        try:
            stats = await self._ask(*(_arm(path, self._session.watcher) for path in unarmed))
        except BaseException:
            self._event(None)
            raise
        seen = dict(zip(unarmed, stats))
        if self._epoch_path in seen:
            self._seen_epoch = seen[self._epoch_path].version

    def _event(self, path: str | None) -> None:
        self._unarmed |= self._watched if path is None else {path}
        is_winner = self._seen_epoch == self._won_epoch and self._epoch_path not in self._unarmed
        if path != self._log_path or not is_winner:  # nobody but the winner extends the list, and it knows
            self._changed.set()

    # Requests

    def _batch_path(self, index: int) -> str:
        return f"{self._log_path}/{index:020d}"

    async def _ask(self, *requests: Request) -> list[Any]:
        return await self._session.ask(*requests)

    async def _commit(self, *steps: Request) -> list[Any]:
        """All of them or none; then the outcome of one is why, and those of the others are errors too."""

        def transaction(zk: Any) -> Any:
            together = zk.transaction()
            for step in steps:
                step(together)
            return together.commit_async()

        (outcomes,) = await self._ask(transaction)
        failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if failed and not any(isinstance(outcome, OUTCOMES) for outcome in failed):
            raise StoreUnavailable(f"ZooKeeper at {self._session.hosts} refused a transaction: {failed}")
        return list(outcomes)


def _get(path: str) -> Request:
    return lambda zk: zk.get_async(path)


def _children(path: str) -> Request:
    return lambda zk: zk.get_children_async(path)


def _arm(path: str, watcher: Callable[[Any], None]) -> Request:
    return lambda zk: zk.exists_async(path, watcher)


def _create_now(path: str, data: bytes = b"", *, sequence: bool = False) -> Request:
    return lambda zk: zk.create_async(path, data, sequence=sequence)


def _create(path: str, data: bytes = b"", *, ephemeral: bool = False) -> Request:
    return lambda transaction: transaction.create(path, data, ephemeral=ephemeral)


def _set(path: str, data: bytes, version: int) -> Request:
    return lambda transaction: transaction.set_data(path, data, version)


def _check(path: str, version: int) -> Request:
    return lambda transaction: transaction.check(path, version)


def _delete(path: str) -> Request:
    return lambda transaction: transaction.delete(path)


def _json(**facts: object) -> bytes:
    return json.dumps(facts).encode()


def _facts(found: tuple[bytes, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(found[0])
    return facts


def _encode(batch: Batch) -> bytes:
    return _BATCH_HEADER.pack(batch.epoch, len(batch.append_id)) + batch.append_id + pack(batch.records)


def _decode(index: int, data: bytes) -> Batch:
    epoch, id_bytes = _BATCH_HEADER.unpack_from(data)
    start = _BATCH_HEADER.size + id_bytes
    return Batch(index, epoch, data[_BATCH_HEADER.size : start], unpack(data[start:]))
