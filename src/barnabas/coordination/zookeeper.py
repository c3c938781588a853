"""A metadata store in ZooKeeper, for brokers on many machines.

Format: everything is below `CHROOT/barnabas`, which names the format. Small nodes hold JSON, for an operator's eyes.

    epoch            its *version* is the latest epoch that anybody won; holds who won it
    controller       ephemeral: the broker that holds the claim, and its epoch
    log              where the list ends
    log/INDEX        one append: epoch, append id, records; INDEX is that of its first record, in 20 digits
    snapshot         the published snapshot: its index, its node below `snapshots`, how many chunks
    snapshots/N/I    one chunk
    cluster          the name of the cluster
    brokers/ID       ephemeral: the process that runs under a broker id

Every write is one transaction of ZooKeeper's that also checks the version of `epoch`, and moves `log` or `snapshot` on
from the version that was read: that is the comparison of epoch and index.

Crash: what ZooKeeper has answered, a majority of its servers has on disk. A snapshot that was not published, and what
a published one was to trim, is removed with the next. A connection that breaks during a write leaves its outcome
unknown. A session that ends takes `controller` with it, so that others may win the next epoch; the claim does not come
back with the connection, one campaigns again.
"""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_left
from collections.abc import Sequence
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
from barnabas.coordination.zookeeper_presence import Presence, be_present, enter
from barnabas.coordination.zookeeper_requests import (
    arm,
    check,
    children,
    create,
    create_now,
    delete,
    ensure_path,
    facts,
    get,
    set_data,
    sync,
    to_json,
)
from barnabas.coordination.zookeeper_session import Denied, ZooKeeperSession
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
        self._presence = Presence.of_this_process(session_timeout_s)
        self._root = f"{self._session.chroot}/barnabas"
        self._presence_path = f"{self._root}/brokers/{broker_id}"
        self._epoch_path, self._controller_path, self._log_path, self._pointer_path = (
            f"{self._root}/{name}" for name in ("epoch", "controller", "log", "snapshot")
        )
        self._watched = {self._epoch_path, self._controller_path, self._log_path}
        self._unarmed = set(self._watched)
        self._changed = asyncio.Event()
        self._won_epoch = -1
        self._seen_epoch: int | None = None  # unknown while its watch is not armed
        self._tail: _Tail | None = None
        self._starts: list[int] = []  # of batches, as last listed

    # The session

    async def open(self) -> None:
        try:
            await self._session.open()
            while True:
                if await self._is_ready():
                    break
                await asyncio.sleep(_RETRY_S)
        except BaseException:
            await self.close()
            raise
        self._changed.set()

    async def close(self) -> None:
        await self._session.close()

    async def _is_ready(self) -> bool:
        """False if ZooKeeper went away again."""
        try:
            await self._prepare()
            await enter(self._session, self._presence_path, self._presence)
        except Denied:
            raise
        except StoreUnavailable as error:
            _log.warning("ZooKeeper out of reach, trying again", problem=str(error))
            return False
        return True

    async def _prepare(self) -> None:
        """Look for the nodes, and make them all at once if they are not there."""
        (found,) = await self._session.ask(get(self._root))
        if isinstance(found, NoNodeError):
            await self._session.ask(ensure_path(self._session.chroot or "/"))
            await self._session.commit(
                create(self._root, to_json(format=FORMAT)),
                create(self._epoch_path, to_json(holder=None)),
                create(self._log_path, to_json(next_index=0)),
                create(self._pointer_path, to_json(index=0, node=None, chunks=0)),
                create(f"{self._root}/snapshots"),
                create(f"{self._root}/brokers"),
            )
            (found,) = await self._session.ask(get(self._root))
        found_format = facts(found)["format"]
        if found_format != FORMAT:
            raise Denied(
                f"{self._root} in ZooKeeper at {self._session.hosts} has metadata format {found_format}, this version "
                f"knows {FORMAT}; upgrade Barnabas or choose another path in zookeeper.connect"
            )

    # The claim

    async def cluster_id(self, proposed: str) -> str:
        path = f"{self._root}/cluster"
        _, found = await self._session.ask(create_now(path, to_json(id=proposed)), get(path))
        cluster_id: str = facts(found)["id"]
        return cluster_id

    async def claim(self) -> Claim:
        epoch, controller = await self._session.ask(get(self._epoch_path), get(self._controller_path))
        if isinstance(controller, NoNodeError):
            return Claim(epoch[1].version, None)
        return Claim(**facts(controller))

    async def campaign(self, after_epoch: int, gone: int | None = None) -> int | None:
        won = after_epoch + 1
        win = (
            set_data(self._epoch_path, to_json(holder=self.broker_id), after_epoch),
            create(self._controller_path, to_json(epoch=won, holder=self.broker_id), ephemeral=True),
        )
        while True:
            (controller,) = await self._session.ask(get(self._controller_path))
            if isinstance(controller, NoNodeError):
                outcomes = await self._session.commit(*win)
            elif facts(controller)["holder"] in (self.broker_id, gone):  # of this session, or of one that is over
                outcomes = await self._session.commit(win[0], delete(self._controller_path), win[1])
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
            checked, moved, created = await self._session.commit(
                check(self._epoch_path, batch.epoch),
                set_data(self._log_path, to_json(next_index=batch.next_index), self._tail.version),
                create(self._batch_path(batch.index), _encode(batch)),
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
        latest, log = await self._session.ask(get(self._epoch_path), get(self._log_path))
        self._tail = _Tail(facts(log)["next_index"], log[1].version)
        if latest[1].version != epoch:
            return Refused(Refusal.STALE_EPOCH)
        return None if self._tail.next_index == index else Refused(Refusal.INDEX_MOVED)

    async def read(self, from_index: int) -> list[Batch] | Trimmed:
        _, pointer, log, found = await self._session.ask(
            sync(self._log_path), get(self._pointer_path), get(self._log_path), get(self._batch_path(from_index))
        )
        first_index, next_index = facts(pointer)["index"], facts(log)["next_index"]
        if from_index < first_index:
            return Trimmed(first_index)
        if from_index >= next_index:
            return []
        if not isinstance(found, NoNodeError):
            batch = _decode(from_index, found[0])
            if batch.next_index >= next_index:
                return [batch]
        starts = await self._starts_from(from_index)
        *batches, pointer = await self._session.ask(
            *(get(self._batch_path(start)) for start in starts), get(self._pointer_path)
        )
        first_index = facts(pointer)["index"]
        if from_index < first_index:  # trimmed in between: the listing or the batches may lack some
            return Trimmed(first_index)
        return self._in_one_piece(from_index, starts, batches)

    def _in_one_piece(self, index: int, starts: list[int], found: list[Any]) -> list[Batch]:
        batches = []
        for start, node in zip(starts, found):
            if start != index or isinstance(node, NoNodeError):
                break
            batches.append(_decode(start, node[0]))
            index = batches[-1].next_index
        if not batches:
            raise StoreUnavailable(f"{self._batch_path(index)} is missing in ZooKeeper, from the middle of the list")
        return batches

    async def _starts_from(self, index: int) -> list[int]:
        """Where the next batches begin. The listing is long, so it is kept until it has been read to its end."""
        position = bisect_left(self._starts, index)
        if position == len(self._starts):
            self._starts = await self._list()
            position = bisect_left(self._starts, index)
        return self._starts[position : position + _PIPELINED]

    async def _list(self) -> list[int]:
        (names,) = await self._session.ask(children(self._log_path))
        return sorted(map(int, names))

    # Snapshots

    async def snapshot(self, epoch: int, index: int, chunks: Sequence[bytes]) -> Answer:
        try:
            return await self._snapshot(epoch, index, chunks)
        except StoreUnavailable as error:
            return Unknown(str(error))

    async def _snapshot(self, epoch: int, index: int, chunks: Sequence[bytes]) -> Answer:
        latest, pointer, log = await self._session.ask(
            get(self._epoch_path), get(self._pointer_path), get(self._log_path)
        )
        next_index = facts(log)["next_index"]
        if latest[1].version != epoch:
            return Refused(Refusal.STALE_EPOCH)
        if not facts(pointer)["index"] <= index <= next_index:
            return Refused(Refusal.INDEX_MOVED)
        (path,) = await self._session.ask(create_now(f"{self._root}/snapshots/", sequence=True))
        node = path.rpartition("/")[2]
        for number, chunk in enumerate(chunks):
            await self._session.ask(create_now(f"{path}/{number}", chunk))
        checked, moved = await self._session.commit(
            check(self._epoch_path, epoch),
            set_data(self._pointer_path, to_json(index=index, node=node, chunks=len(chunks)), pointer[1].version),
        )
        if isinstance(checked, BadVersionError):
            return Refused(Refusal.STALE_EPOCH)
        if isinstance(moved, Exception):
            return Refused(Refusal.INDEX_MOVED)
        await self._trim(epoch, index, node)
        return Done(next_index)

    async def _trim(self, epoch: int, index: int, kept: str) -> None:
        """Remove what the snapshot stands for, and all other snapshots, but none of a later controller's."""
        still_wins = check(self._epoch_path, epoch)
        doomed = [self._batch_path(start) for start in await self._list() if start < index]
        snapshots = f"{self._root}/snapshots"
        (nodes,) = await self._session.ask(children(snapshots))
        for path in (f"{snapshots}/{node}" for node in nodes if node != kept):
            (chunks,) = await self._session.ask(children(path))
            if isinstance(chunks, NoNodeError):
                return  # a later controller trims already
            doomed += [*(f"{path}/{chunk}" for chunk in chunks), path]
        for some in range(0, len(doomed), _DELETES_PER_TRANSACTION):
            await self._session.commit(still_wins, *map(delete, doomed[some : some + _DELETES_PER_TRANSACTION]))

    async def latest_snapshot(self) -> Snapshot | None:
        while True:
            (found,) = await self._session.ask(get(self._pointer_path))
            pointer = facts(found)
            if pointer["node"] is None:
                return None
            path = f"{self._root}/snapshots/{pointer['node']}"
            chunks = await self._session.ask(*(get(f"{path}/{number}") for number in range(pointer["chunks"])))
            if not any(isinstance(chunk, NoNodeError) for chunk in chunks):
                return Snapshot(pointer["index"], tuple(data for data, _ in chunks))

    # Watching

    async def watch(self) -> None:
        """Watches are armed before this returns, so that whoever looks then misses nothing afterwards."""
        await self._changed.wait()
        self._changed.clear()
        unarmed, self._unarmed = self._unarmed, set()
        if self._epoch_path in unarmed:
            self._seen_epoch = None
        try:
            if unarmed == self._watched:  # the session may be a new one
                await self._session.ask(be_present(self._presence_path, self._presence))
            stats = await self._session.ask(*(arm(path, self._session.watcher) for path in unarmed))
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

    def _batch_path(self, index: int) -> str:
        return f"{self._log_path}/{index:020d}"


def _encode(batch: Batch) -> bytes:
    return _BATCH_HEADER.pack(batch.epoch, len(batch.append_id)) + batch.append_id + pack(batch.records)


def _decode(index: int, data: bytes) -> Batch:
    epoch, id_bytes = _BATCH_HEADER.unpack_from(data)
    start = _BATCH_HEADER.size + id_bytes
    return Batch(index, epoch, data[_BATCH_HEADER.size : start], unpack(data[start:]))
