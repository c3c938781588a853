"""Options of a group's member are checked when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.group.options import GroupOptions
from barnabas.client.options import WrongOption


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"group_id": ""}, "no name of a group"),
        ({"group_protocol": "new"}, "none of 'auto', 'classic', 'consumer'"),
        ({"partition_assignment_strategy": ["rang"]}, "none of 'range', 'roundrobin', 'sticky', 'cooperative-sticky'"),
        ({"partition_assignment_strategy": "range"}, "takes a list"),
        ({"partition_assignment_strategy": []}, "takes a list"),
        ({"heartbeat_interval_ms": 50_000}, "not below session_timeout_ms=45000"),
        ({"session_timeout_ms": 0}, "session_timeout_ms=0 is below 1"),
        ({"max_poll_interval_ms": 0}, "max_poll_interval_ms=0 is below 1"),
        (
            {"group_protocol": "consumer", "session_timeout_ms": 9000},
            "session_timeout_ms belongs to group_protocol='classic'",
        ),
        ({"group_protocol": "classic", "group_remote_assignor": "uniform"}, "belongs to group_protocol='consumer'"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(WrongOption, match=says):
        GroupOptions(**{"group_id": "g", **options})


def test_defaults_are_javas() -> None:
    options = GroupOptions(group_id="g")
    assert (options.session_ms, options.heartbeat_ms, options.max_poll_interval_ms) == (45_000, 3_000, 300_000)
    assert options.strategy == ("range", "cooperative-sticky")
    assert options.classic_only == []
