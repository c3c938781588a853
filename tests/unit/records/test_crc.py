from __future__ import annotations

from importlib.machinery import PathFinder

import crc32c as package
import pytest

from barnabas.records import crc


def test_checksum_is_that_of_rfc_3720() -> None:
    assert crc.crc32c(b"123456789") == 0xE3069283
    assert crc.crc32c(memoryview(bytearray(32))) == 0x8A9136AA
    assert crc.crc32c(b"456789", crc.crc32c(b"123")) == 0xE3069283


def test_package_is_used_where_its_extension_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, path=None: None)
    assert crc._load() is package
