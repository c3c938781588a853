"""What a member's state machine may want its driver to do next."""

from __future__ import annotations

from math import inf
from typing import Any, TypeAlias

from barnabas.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """Send to the coordinator, and tell the machine what it answered."""

    message: Any
    extra_timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask the cluster for these topics, or for all with None, and tell the machine which there are."""

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until then, unless something happens."""

    until: float = inf


Step: TypeAlias = Ask | LookUp | Rest
