"""What a member of a consumer group tells of itself, in whichever language it is written.

A member is started as `PROGRAM ADDRESS GROUP TOPIC JOURNAL MEMBER [KEY=VALUE ...]`, the settings under the names of its
library, and leaves the group on SIGTERM. All members of a group append to one file, a line by one write, so that the
order of the lines is the order of the events whatever the clocks say:

    MILLISECONDS MEMBER gain PARTITION ...    these partitions are its own from now on
    MILLISECONDS MEMBER lose PARTITION ...    and these no longer
    MILLISECONDS MEMBER saw PARTITION OFFSET  a record was processed; its offset is committed after that
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple


class Journal:
    def __init__(self, path: str, member: str) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_WRONLY)
        self._member = member

    def write(self, event: str, partitions: Iterable[int]) -> None:
        numbers = " ".join(map(str, partitions))
        os.write(self._file, f"{time.time_ns() // 1_000_000} {self._member} {event} {numbers}\n".encode())


class Arguments(NamedTuple):
    address: str
    group: str
    topic: str
    journal: Journal
    settings: dict[str, str]


def arguments() -> Arguments:
    address, group, topic, journal, member, *settings = sys.argv[1:]
    return Arguments(address, group, topic, Journal(journal, member), dict(each.split("=", 1) for each in settings))


class Stop:
    """Becomes true with SIGTERM."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_asked", True))

    def __bool__(self) -> bool:
        return self._asked
