"""Tests of what is written need not wait for the device; what a power cut takes is tested on a simulated disk."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.storage.disk._sync_descriptor", lambda descriptor: None)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
