"""Nine seeds of a group of our own members, three in each protocol, while broker, members and connections fail."""

from __future__ import annotations

import pytest

from barnabas.client.group.commits import Commits
from barnabas.client.group.values import GroupMetadata
from tests.simulation.consumer_group import run


@pytest.mark.parametrize("seed", range(9))
def test_a_group_settles_and_no_commit_is_taken_back(seed: int) -> None:
    _, problems = run(seed)
    assert not problems, f"python -m tests.simulation.consumer_group {seed}\n{problems}"


def test_commits_without_an_identity_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Commits._send

    async def anonymous(self: Commits, who: GroupMetadata, offsets: object) -> object:
        return await send(self, GroupMetadata(who.group_id), offsets)  # type: ignore[arg-type]

    monkeypatch.setattr(Commits, "_send", anonymous)
    assert run(0)[1]
