"""Every test of the codec runs on both engines: the compiled one and its sources."""

from __future__ import annotations

import os

import pytest

from barnabas.records import append_codec, codec, column_codec, compaction_codec, engine, row_codec


@pytest.fixture(params=["compiled", "uncompiled"])
def either_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_engine(request.param, monkeypatch)


def use_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "uncompiled":
        monkeypatch.setattr(engine, "codec", codec)
        monkeypatch.setattr(engine, "column_codec", column_codec)
        monkeypatch.setattr(engine, "row_codec", row_codec)
        monkeypatch.setattr(engine, "compaction_codec", compaction_codec)
        monkeypatch.setattr(engine, "append_codec", append_codec)
    else:
        choice = engine.choose(pure=False)
        if not choice.compiled:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(choice.reason)
        monkeypatch.setattr(engine, "codec", choice.codec)
        monkeypatch.setattr(engine, "column_codec", choice.column_codec)
        monkeypatch.setattr(engine, "row_codec", choice.row_codec)
        monkeypatch.setattr(engine, "compaction_codec", choice.compaction_codec)
        monkeypatch.setattr(engine, "append_codec", choice.append_codec)
