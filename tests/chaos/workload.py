"""All clients of a round at work: librdkafka's in threads, our own on a loop in one thread more."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from tests.chaos import confluent_clients, own_clients
from tests.chaos.journal import Journal
from tests.chaos.load import PLAIN, Load

END_WITHIN_S = 120.0
_CLASSIC = {"session.timeout.ms": 6000}
_COOPERATIVE = {**_CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}
_EAGER = {**_CLASSIC, "partition.assignment.strategy": "range"}
_NEW = {"group.protocol": "consumer"}

LIBRDKAFKAS = "ann"
WRITERS = (LIBRDKAFKAS, "ben", "tim", "tom")
"""Idempotent: librdkafka's and ours. Transactional: librdkafka's and ours."""
READERS = ("rita", "rosa")
"""Who read by hand: librdkafka and ours."""
GROUPS = {
    "eager": ("eva", "eve"),
    "cooperative": ("cleo", "cora"),
    "new": ("nell", "nina"),
    "own-classic": ("olga", "oona"),
    "own-new": ("pia", "pola"),
    "mixed": ("mae", "mia"),
}
"""The members of each group; the last one has a client of either library."""
COPIERS = ("kim", "kit")
COPYING = "copying"


class Workload:
    def __init__(self, journal: Journal, load: Load, bootstrap: str, directory: Path) -> None:
        """`directory` is for what clients write down besides the journal."""
        common = (journal, load, bootstrap)
        theirs: dict[str, Callable[[], None]] = {
            LIBRDKAFKAS: partial(
                confluent_clients.idempotent,
                *common,
                LIBRDKAFKAS,
                confluent_clients.notes(directory / f"{LIBRDKAFKAS}.log"),
            ),
            "tim": partial(confluent_clients.transactional, *common, "tim"),
            "rita": partial(confluent_clients.reader, *common, "rita"),
        }
        ours: dict[str, Callable[[], Awaitable[None]]] = {
            "ben": partial(own_clients.idempotent, *common, "ben"),
            "tom": partial(own_clients.transactional, *common, "tom"),
            "rosa": partial(own_clients.reader, *common, "rosa"),
        }
        for group, settings in (("eager", _EAGER), ("cooperative", _COOPERATIVE), ("new", _NEW)):
            for name in GROUPS[group]:
                theirs[name] = partial(confluent_clients.member, *common, name, group, settings)
        for name in GROUPS["own-classic"]:
            ours[name] = partial(own_clients.member, *common, name, "own-classic", "classic")
        for name in GROUPS["own-new"]:
            ours[name] = partial(own_clients.member, *common, name, "own-new", "consumer")
        first, second = GROUPS["mixed"]
        theirs[first] = partial(confluent_clients.member, *common, first, "mixed", _NEW)
        ours[second] = partial(own_clients.member, *common, second, "mixed", "consumer")
        for name in COPIERS:
            ours[name] = partial(own_clients.copier, *common, name, COPYING, "consumer")
        self._journal = journal
        self._threads = {
            name: threading.Thread(target=self._guarded, args=(name, work), name=name, daemon=True)
            for name, work in theirs.items()
        }
        self._loop_thread = threading.Thread(target=self._guarded, args=("own", partial(self._run, ours)), daemon=True)
        self._writing_ends: dict[str, threading.Event] = {name: threading.Event() for name in WRITERS}
        for name in (*WRITERS, *READERS, *GROUPS, COPYING):
            journal.expect(name)

    def start(self) -> None:
        for thread in (*self._threads.values(), self._loop_thread):
            thread.start()

    def end_writing(self) -> None:
        """What was sent is acknowledged, and no transaction is open."""
        self._journal.writing.clear()
        late = [name for name, over in self._writing_ends.items() if not over.wait(END_WITHIN_S)]
        if late:
            raise AssertionError(f"writers that do not come to their end: {', '.join(late)}")

    def end_reading(self) -> None:
        self._journal.writing.clear()
        self._journal.reading.clear()
        for name, thread in (*self._threads.items(), ("own", self._loop_thread)):
            thread.join(END_WITHIN_S)
            if thread.is_alive():
                raise AssertionError(f"a client that does not come to its end: {name}")

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._journal.fail(f"{name}: {''.join(traceback.format_exception(error))}")
        finally:
            self._is_over(name)

    def _is_over(self, name: str) -> None:
        if name in self._writing_ends:
            self._writing_ends[name].set()

    def _run(self, clients: dict[str, Callable[[], Awaitable[None]]]) -> None:
        async def guarded(name: str, work: Callable[[], Awaitable[None]]) -> None:
            try:
                await work()
            finally:
                self._is_over(name)

        async def all_of_them() -> None:
            async with asyncio.TaskGroup() as group:
                for name, work in clients.items():
                    group.create_task(guarded(name, work), name=name)

        asyncio.run(all_of_them())


def read_topics() -> dict[str, tuple[str, ...]]:
    """The topics that each group or lone reader reads, by its name."""
    return {**dict.fromkeys((*READERS, *GROUPS), Load.topics), COPYING: (PLAIN,)}


def members() -> dict[str, tuple[str, ...]]:
    """Who reads together, by the name of the group or of the lone reader."""
    return {**{name: (name,) for name in READERS}, **GROUPS, COPYING: COPIERS}
