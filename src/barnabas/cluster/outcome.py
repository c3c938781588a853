"""What a decision of the controller stands on besides the image, and what it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from barnabas.cluster.records import Record
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Context:
    """The random source, and the configuration that holds the defaults of the cluster."""

    rng: Random
    config: BrokerConfig


@dataclass(frozen=True, slots=True)
class Outcome:
    """Records to be appended all or none, then the reply; it holds only once they are in the log.

    `unclean_elections` counts the partitions that get a leader who may miss acknowledged records.
    """

    records: Sequence[Record]
    reply: Any
    warnings: tuple[str, ...] = ()
    unclean_elections: int = 0
