"""The metadata log as a broker lives with it: follows the list in the store, and extends it while it is the controller.

One task owns the image. It folds what others have appended, campaigns when the claim is free, and, as controller, works
off events: those that arrive while an append is under way join the next one, each decided on the image that includes
those before it. Nobody gets a reply before the records that it stands on are in the list.

An append whose answer is unknown is looked for by its id, and tried again under the same id at the same index; the
store takes it once at most. A controller that finds itself replaced resigns: its undecided events are answered with
NOT_CONTROLLER, and it follows like everybody else. A change too large for one append goes in several, between a
BeginTransactionRecord and an EndTransactionRecord; what has no end does not count, and the next controller aborts it.

Crash: nothing is kept here that is not in the store.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import field
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from barnabas.cluster import records as r
from barnabas.cluster.controller import decide
from barnabas.cluster.delta import Delta, changes
from barnabas.cluster.events import Event, Reply
from barnabas.cluster.fold import apply
from barnabas.cluster.image import EMPTY, Image
from barnabas.cluster.snapshot import snapshot_records
from barnabas.coordination.store import (
    MAX_APPEND_BYTES,
    Claim,
    Done,
    MetadataStore,
    Snapshot,
    StoreUnavailable,
    Trimmed,
    Unknown,
    pack,
    packed_size,
    unpack,
)
from barnabas.core import logs
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.core.broker_config import BrokerConfig
    from barnabas.core.seams import Clock

_log = logs.get_logger(__name__)

T = TypeVar("T")
Subscriber: TypeAlias = Callable[[Delta, Image], None]
Waiter: TypeAlias = "asyncio.Future[Any]"

SNAPSHOT_EVERY = 10_000  # records
FIRST_BACKOFF_S = 0.05
LAST_BACKOFF_S = 1.0
NOBODY = -1
_UNKNOWN_OUTCOME = (
    "it is not known whether the change was made: the metadata has moved on since; look before trying again"
)


class Landed(enum.Enum):
    """Whether an append is in the list. `UNKNOWN`: the list was trimmed by others before it could be looked for."""

    YES = enum.auto()
    NO = enum.auto()
    UNKNOWN = enum.auto()


@dataclass(slots=True)
class _Decided:
    """Events that go into one append: their records, the image after them, and the replies that wait for it."""

    image: Image
    records: list[bytes] = field(default_factory=list)
    size: int = 0
    replies: list[tuple[Waiter, Any]] = field(default_factory=list)
    """A reply that is an exception is raised where the event was submitted."""
    unclean_elections: int = 0


class MetadataLog:
    """Its owner opens and closes the store, and calls everything here from one loop."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        rng: Random,
        config: BrokerConfig,
        *,
        snapshot_every: int = SNAPSHOT_EVERY,
    ) -> None:
        self.image = EMPTY
        self.broker_id = store.broker_id
        self.controller_id = NOBODY
        self.controller_epoch = 0
        self.trouble = ""
        """Why the store is out of reach, if it is."""
        self.unclean_elections = 0
        """Of partitions, by this broker as the controller."""
        self._deposed: Claim | None = None
        self._store = store
        self._clock = clock
        self._rng = rng
        self._config = config
        self.snapshot_every = snapshot_every
        self._snapshot_index = 0
        self._leads = False
        self._has_open_transaction = False
        self._end = 0  # of the list, as far as it was read
        self._pending: deque[tuple[Event[Any], Waiter]] = deque()
        self._waiters: set[Waiter] = set()
        self._subscribers: list[Subscriber] = []
        self._controller_watchers: list[Callable[[], None]] = []
        self._looking: list[asyncio.Future[None]] = []  # who waits for the list to be read again
        self._expecting: list[tuple[Callable[[Image], bool], asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._may_have_changed = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_controller(self) -> bool:
        return self._leads

    async def start(self) -> None:
        """Return with the image up to date, and as controller if the claim was free. Waits for a store that is away."""
        started = self._clock.monotonic()
        await self.persist(self._follow)
        _log.info(
            "metadata replayed",
            index=self.image.index,
            topics=len(self.image.topics),
            controller=self.controller_id,
            ms=round((self._clock.monotonic() - started) * 1000, 1),
        )
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._watch())]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Events that were not answered yet are refused; what was appended stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._resign("broker is stopping")

    async def submit(self, event: Event[Reply]) -> Reply:
        """The controller's reply, once its records are in the log; KafkaError if the event was refused as a whole."""
        if not self._leads:
            raise self.not_controller()
        waiter: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        self._pending.append((event, waiter))
        self._wake.set()
        return await waiter

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call with every change of the image, in order, from the loop, before whoever asked for it has the reply."""
        self._subscribers.append(subscriber)

    def watch_controller(self, callback: Callable[[], None]) -> None:
        """Call, from the loop, whenever another broker may be the controller, or this one leads or resigns."""
        self._controller_watchers.append(callback)

    async def refresh(self) -> None:
        """Return once everything that was in the list before is in the image; waits for a store that is away.

        A controller looks too: it may have been replaced without knowing it yet.
        """
        looking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._looking.append(looking)
        self._may_have_changed = True
        self._wake.set()
        await looking

    async def until(self, is_so: Callable[[Image], bool]) -> None:
        """Return once the image is as expected."""
        if is_so(self.image):
            return
        expected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (is_so, expected)
        self._expecting.append(entry)
        try:
            await expected
        finally:
            self._expecting.remove(entry)

    def depose(self, controller_id: int) -> None:
        """The controller's process is dead, as this broker knows: the store need not find out first.

        If it is not, its next append is refused: safety is in the epochs.
        """
        if not self._leads and controller_id == self.controller_id:
            self._deposed = Claim(self.controller_epoch, controller_id)
            self._may_have_changed = True
            self._wake.set()

    def preview(self, event: Event[Reply]) -> tuple[Reply, bool]:
        """What the controller would answer now, and whether it would have to write for it."""
        if not self._leads:
            raise self.not_controller()
        outcome = decide(self.image, event, self._rng, self._config)
        return outcome.reply, bool(outcome.records)

    # The task that owns the image

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._may_have_changed:
                self._may_have_changed = False
                looking, self._looking = self._looking, []
                await self.persist(self._follow)
                for waiter in looking:
                    _answer(waiter, None)
            while self._pending and self._leads:
                await self._extend()

    async def _watch(self) -> None:
        while True:
            await self.persist(self._store.watch)
            self._may_have_changed = True
            self._wake.set()

    async def persist(self, step: Callable[[], Awaitable[T]]) -> T:
        """Take a step, again and again while the store is out of reach."""
        for backoff_s in _backoffs():
            try:
                result = await step()
            except StoreUnavailable as error:
                self.trouble = str(error)
                _log.warning("metadata store out of reach, trying again", problem=str(error))
                await asyncio.sleep(backoff_s)
            else:
                self.trouble = ""
                return result
        raise AssertionError("back-offs have no end")

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            _log.error("metadata log has failed; restart this broker", problem=repr(task.exception()))
            self._resign("metadata log of this broker has failed")

    # Following

    async def _follow(self) -> None:
        """Fold what is new; then lead if nobody does, or stop leading if somebody else does."""
        await self._catch_up()
        claim = await self._store.claim()
        if self._leads and claim != Claim(self.controller_epoch, self.broker_id):
            self._resign("the claim is lost")
        self._set_controller(NOBODY if claim.holder is None else claim.holder, claim.epoch)
        if not self._leads and (claim.holder in (None, self.broker_id) or claim == self._deposed):
            epoch = await self._store.campaign(claim.epoch, claim.holder)
            if epoch is not None:
                await self._take_over(epoch)

    async def _take_over(self, epoch: int) -> None:
        """Nobody else can append now: read what the controller before has left, and finish its business."""
        self._set_controller(self.broker_id, epoch)
        await self._catch_up()
        if self._has_open_transaction:
            abort = r.encode(r.AbortTransactionRecord(reason=f"broker {self.broker_id} has become controller"))
            if await self._append([abort]) is not Landed.YES:
                return
            await self._catch_up()
        self._leads = True
        _log.info("became controller", epoch=epoch, index=self._end)
        self._tell_controller_watchers()

    def _set_controller(self, controller_id: int, epoch: int) -> None:
        is_news = (self.controller_id, self.controller_epoch) != (controller_id, epoch)
        self.controller_id, self.controller_epoch = controller_id, epoch
        if is_news:
            self._tell_controller_watchers()

    def _tell_controller_watchers(self) -> None:
        for watcher in self._controller_watchers:
            watcher()

    async def _catch_up(self) -> None:
        image, index = self.image, self.image.index
        complete: list[r.Record] = []
        transaction: list[r.Record] | None = None
        complete_index = index
        while batches := await self._store.read(index):
            if isinstance(batches, Trimmed):
                snapshot = await self._store.latest_snapshot()
                assert snapshot is not None, "a list is trimmed only when a snapshot stands for it"
                image = _image_of(snapshot)
                self._snapshot_index = index = snapshot.index
                complete, transaction, complete_index = [], None, index
                continue
            for batch in batches:
                for index, data in enumerate(batch.records, batch.index + 1):
                    match r.decode(data):
                        case r.BeginTransactionRecord():
                            transaction = []
                        case r.EndTransactionRecord():
                            complete += transaction or ()
                            transaction = None
                        case r.AbortTransactionRecord():
                            transaction = None
                        case record:
                            (complete if transaction is None else transaction).append(record)
                    if transaction is None:
                        complete_index = index
        self._end = index
        self._has_open_transaction = transaction is not None
        if complete_index != self.image.index:
            self._publish(apply(image, complete, complete_index))

    def _publish(self, image: Image) -> None:
        delta = changes(self.image, image)
        self.image = image
        for subscriber in self._subscribers:
            try:
                subscriber(delta, image)
            except Exception:
                _log.exception("subscriber to metadata failed", subscriber=repr(subscriber))
        for is_so, expected in self._expecting:
            if is_so(image):
                _answer(expected, None)

    # Leading

    async def _extend(self) -> None:
        """Decide what is pending, append it, and answer."""
        decided = self._decide()
        if decided.records:
            landed = await self._append_all(decided)
            if landed is not Landed.YES:
                if landed is Landed.UNKNOWN:
                    for waiter, _ in decided.replies:
                        _answer(waiter, KafkaError(ErrorCode.REQUEST_TIMED_OUT, _UNKNOWN_OUTCOME))
                self._resign("another broker has become controller")
                self._may_have_changed = True
                self._wake.set()
                return
            self._publish(decided.image)
            self.unclean_elections += decided.unclean_elections
        for waiter, reply in decided.replies:
            _answer(waiter, reply)
        if self.image.index - self._snapshot_index >= self.snapshot_every:
            await self._snapshot()

    def _decide(self) -> _Decided:
        decided = _Decided(self.image)
        while self._pending and decided.size <= MAX_APPEND_BYTES:
            event, waiter = self._pending[0]
            if waiter.done():  # whoever asked has given up
                self._pending.popleft()
                continue
            try:
                outcome = decide(decided.image, event, self._rng, self._config)
                records = r.encode_all(outcome.records)
                size = packed_size(records)
                if decided.records and decided.size + size > MAX_APPEND_BYTES:
                    break  # it begins the next append
                is_transaction = size > MAX_APPEND_BYTES
                next_index = decided.image.index + len(records) + 2 * is_transaction
                decided.image = apply(decided.image, outcome.records, next_index)
            except KafkaError as error:
                decided.replies.append((waiter, error))
            except Exception as error:
                _log.exception("metadata event failed", kind=type(event).__name__)
                decided.replies.append((waiter, error))
            else:
                decided.records += records
                decided.size += size
                decided.replies.append((waiter, outcome.reply))
                decided.unclean_elections += outcome.unclean_elections
                for warning in outcome.warnings:
                    _log.warning("controller's decision", warning=warning)
            self._pending.popleft()
        return decided

    async def _append_all(self, decided: _Decided) -> Landed:
        if decided.size <= MAX_APPEND_BYTES:
            return await self._append(decided.records)
        begin, end = r.encode(r.BeginTransactionRecord()), r.encode(r.EndTransactionRecord())
        for chunk in _chunks((begin, *decided.records, end)):
            landed = await self._append(chunk)
            if landed is not Landed.YES:
                return landed
        return Landed.YES

    async def _append(self, records: list[bytes]) -> Landed:
        """Try until it is certain whether the records are in the list."""
        append_id = self._rng.randbytes(16)
        for backoff_s in _backoffs():
            answer = await self._store.append(self.controller_epoch, self._end, append_id, records)
            if isinstance(answer, Done):
                self.trouble = ""
                self._end = answer.next_index
                return Landed.YES
            batches = await self.persist(lambda: self._store.read(self._end))
            if isinstance(batches, Trimmed):
                return Landed.UNKNOWN
            if batches:
                if batches[0].append_id != append_id:
                    return Landed.NO
                self._end = batches[0].next_index
                return Landed.YES
            if not isinstance(answer, Unknown):
                return Landed.NO
            self.trouble = answer.detail
            _log.warning("metadata append not confirmed, trying again", problem=answer.detail)
            await asyncio.sleep(backoff_s)
        raise AssertionError("back-offs have no end")

    async def _snapshot(self) -> None:
        chunks = []
        for chunk in _chunks(r.encode(record) for record in snapshot_records(self.image)):
            chunks.append(pack(chunk))
            await asyncio.sleep(0)  # let the loop turn between chunks
        index = self.image.index
        answer = await self._store.snapshot(self.controller_epoch, index, chunks)
        self._snapshot_index = index  # whatever the answer: if it failed, the next turn comes in due time
        _log.info("metadata snapshot", index=index, chunks=len(chunks), answer=type(answer).__name__)

    def _resign(self, reason: str) -> None:
        """Answer everybody who still waits that somebody else must be asked."""
        if self._leads:
            _log.info("no longer controller", epoch=self.controller_epoch, reason=reason)
        self._leads = False
        self._set_controller(NOBODY, self.controller_epoch)
        self._pending.clear()
        for waiter in list(self._waiters):
            _answer(waiter, self.not_controller())

    def not_controller(self) -> KafkaError:
        where = "nobody is at the moment" if self.controller_id == NOBODY else f"broker {self.controller_id} is"
        return KafkaError(
            ErrorCode.NOT_CONTROLLER, f"broker {self.broker_id} is not the controller, {where}; ask again"
        )


def _image_of(snapshot: Snapshot) -> Image:
    records = (r.decode(record) for chunk in snapshot.chunks for record in unpack(chunk))
    return apply(EMPTY, records, snapshot.index)


def _backoffs() -> Iterator[float]:
    """Seconds to wait between attempts: doubling, then steady, without end."""
    backoff_s = FIRST_BACKOFF_S
    while True:
        yield backoff_s
        backoff_s = min(2 * backoff_s, LAST_BACKOFF_S)


def _chunks(records: Iterable[bytes]) -> Iterable[list[bytes]]:
    """Records in runs that fit one append each."""
    chunk: list[bytes] = []
    room = MAX_APPEND_BYTES
    for record in records:
        size = packed_size((record,))
        if size > room:
            yield chunk
            chunk, room = [], MAX_APPEND_BYTES
        chunk.append(record)
        room -= size
    if chunk:
        yield chunk


def _answer(waiter: Waiter, reply: Any) -> None:
    if waiter.done():
        return
    if isinstance(reply, BaseException):
        waiter.set_exception(reply)
    else:
        waiter.set_result(reply)
