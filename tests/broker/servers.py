"""Brokers of the kind under test, and what is said of tests that only one kind can pass."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.peers import QUICK_JVM, BarnabasServer, Broker, KafkaServer

ON_KAFKA = os.environ.get("BARNABAS_TEST_PEER") == "kafka"


def barnabas_only(reason: str) -> pytest.MarkDecorator:
    """For what Kafka does otherwise or not at all; the reason says so."""
    return pytest.mark.skipif(ON_KAFKA, reason=reason)


def start(directory: Path, settings: Mapping[str, str] | None = None) -> Broker:
    if ON_KAFKA:
        return KafkaServer(directory, settings, jvm=(*QUICK_JVM, "-Xmx1G"))
    return BarnabasServer(directory, settings)
