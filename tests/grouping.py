"""Which tests run in one process: those that share an expensive server, so that it starts once; else those of a file.

pytest-xdist hands out groups as processes become free (`--dist loadgroup`), in the order of the collection. Long groups
come first, so that no process ends long after the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent

SERVERS = {
    "spark": "spark",
    "spark_broker": "spark",
    "kafka": "kafka",
    "cluster": "kafka",
    "group_cluster": "kafka",
    "zookeeper": "zookeeper",
}
"""The group of a test that uses a fixture."""

LONGEST_FIRST = ("spark", "kafka", "packaging", "cluster", "interop", "simulation", "hostile", "zookeeper", "clients")
"""Groups and directories; all others follow."""


def arrange(items: list[pytest.Item]) -> None:
    """Name the group of every test, and put long groups first; within a group, the order stays."""
    for item in items:
        group = group_of(item)
        item.add_marker(pytest.mark.xdist_group(group))
        if group in SERVERS.values():
            item.add_marker(pytest.mark.peers)
    items.sort(key=_rank)


def group_of(item: pytest.Item) -> str:
    used = [SERVERS[name] for name in getattr(item, "fixturenames", ()) if name in SERVERS]
    return used[0] if used else item.path.relative_to(TESTS).as_posix()


def _rank(item: pytest.Item) -> int:
    group = group_of(item)
    directory = item.path.relative_to(TESTS).parts[0]
    return next(
        (rank for rank, name in enumerate(LONGEST_FIRST) if name in (group, directory)),
        len(LONGEST_FIRST),
    )
