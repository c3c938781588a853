"""What a check of `doctor` comes to."""

from __future__ import annotations

from enum import Enum

from barnabas.core.dataclass import dataclass


class Status(Enum):
    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: Status
    detail: str
