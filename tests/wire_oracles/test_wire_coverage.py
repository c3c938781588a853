"""The protocol page is what the tables and the broker's handlers say today."""

from __future__ import annotations

import re

from barnabas.broker.handlers import SERVED
from barnabas.wire.coverage import coverage
from barnabas.wire.registry import API_KEYS
from tests import peers


def test_the_protocol_page_is_up_to_date() -> None:
    page = (peers.ROOT / "docs" / "protocol.md").read_text()
    command = re.findall(r"Written by `(.+?)`", page)[0]
    assert page == coverage(SERVED), f"run `{command}`"


def test_every_api_has_a_row_that_tells_its_purpose() -> None:
    rows = [line.split(" | ") for line in coverage({0: (3, 13)}).splitlines() if line.startswith("| ")][2:]
    assert [int(row[0].removeprefix("| ")) for row in rows] == sorted(API_KEYS)
    assert {row[4] for row in rows} == {"no", "3-13"}
    assert all(len(row[5]) > 10 and ": " not in row[5][:12] for row in rows)
