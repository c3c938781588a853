from __future__ import annotations

from barnabas.core.config_reference import reference
from tests.peers import ROOT


def test_the_written_reference_is_up_to_date() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == reference(), "run: python -m barnabas.core.config_reference > docs/configuration.md"
