"""Options that several verbs share."""

from __future__ import annotations

import pytest
import typer

from barnabas.cli.options import parse_settings


def test_settings_keep_everything_after_the_first_equals_sign() -> None:
    assert parse_settings(["a.b=c=d", " x =1", "empty="]) == {"a.b": "c=d", "x": "1", "empty": ""}
    assert parse_settings(None) == {}


@pytest.mark.parametrize("setting", ["novalue", "=1", " =1"])
def test_a_setting_without_key_or_value_is_an_error_of_usage(setting: str) -> None:
    with pytest.raises(typer.BadParameter, match="key=value"):
        parse_settings([setting])
