"""What went wrong in the background, until the caller comes and hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable


class Complaints:
    """One per subject: the latest. A subject that is well again, or was given another place, has none."""

    def __init__(self, arrived: asyncio.Event) -> None:
        self._arrived = arrived
        self._errors: dict[Hashable, BaseException] = {}

    def add(self, subject: Hashable, error: BaseException) -> None:
        self._errors[subject] = error
        self._arrived.set()

    def withdraw(self, subject: Hashable) -> None:
        self._errors.pop(subject, None)

    def raise_first(self) -> None:
        for subject in self._errors:
            raise self._errors.pop(subject)
