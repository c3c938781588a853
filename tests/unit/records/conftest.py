"""Every test of the codec runs on both engines: the compiled one and its sources."""

from __future__ import annotations

import os

import pytest

from barnabas.records import (
    append_codec,
    avro_codec,
    codec,
    column_codec,
    compaction_codec,
    csv_codec,
    engine,
    json_codec,
    row_codec,
)


@pytest.fixture(params=["compiled", "uncompiled"])
def either_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_engine(request.param, monkeypatch)


CODECS = {
    "codec": codec,
    "column_codec": column_codec,
    "row_codec": row_codec,
    "compaction_codec": compaction_codec,
    "append_codec": append_codec,
    "json_codec": json_codec,
    "csv_codec": csv_codec,
    "avro_codec": avro_codec,
}


def use_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = engine.choose(pure=False)
    if name == "compiled" and not choice.compiled:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(choice.reason)
    for each, module in CODECS.items():
        monkeypatch.setattr(engine, each, getattr(choice, each) if name == "compiled" else module)
