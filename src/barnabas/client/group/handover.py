"""What a caller and its membership share, each on its own thread: changes, signs of life, who the member is.

Every access holds the lock, and nobody waits while holding it. A change that the caller has not taken yet may be
replaced by another; one that it has taken stands until it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from barnabas.client.group.values import Change, GroupMetadata
from barnabas.client.metadata import TopicPartition


class Handover:
    def __init__(self, identity: GroupMetadata, polled_at: float, wake_caller: Callable[[], None]) -> None:
        self.lock = Lock()
        self.polled_at = polled_at
        """When the caller was heard of for the last time; a lone float needs no lock."""
        self.silent = False
        """Whether the member has left because of the caller's silence, and waits for a sign of life."""
        self.identity = identity
        self.owned: frozenset[TopicPartition] = frozenset()
        self.outside = ""
        """Why the member is not in its group; empty while it is."""
        self.problem: Exception | None = None
        self.wake_caller = wake_caller
        self._offered: Change | None = None
        self._taken: Change | None = None
        self._done: list[Change] = []

    # the caller's side

    def take(self) -> Change | None:
        with self.lock:
            if self._taken is None and self._offered is not None:
                self._taken, self._offered = self._offered, None
                return self._taken
            return None

    def give_back(self, change: Change) -> None:
        with self.lock:
            if change is not self._taken:
                raise ValueError("this change is not the one that was taken last")
            self._taken = None
            self._done.append(change)

    # the membership's side, which holds the lock for a whole turn

    def collect_done(self) -> list[Change]:
        done, self._done = self._done, []
        return done

    @property
    def busy(self) -> bool:
        return self._taken is not None

    def offer(self, change: Change | None) -> None:
        if self.busy or change is self._offered:
            return
        self._offered = change
        if change is not None:
            self.wake_caller()

    def fail(self, problem: Exception) -> None:
        self.problem = problem
        self.wake_caller()
