"""Which tests run in one process: those that share an expensive server, so that it starts once; else those of a file.

pytest-xdist hands out groups as processes become free (`--dist loadgroup`), in the order of the collection. Long groups
come first, so that no process ends long after the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent

SERVERS = {
    "spark": {"spark", "spark_broker"},
    "clients": {"kafka", "cluster", "group_cluster"},
    "unit/coordinator": {"judge"},
    "unit/coordination": {"zookeeper"},
    "zookeeper": {"zookeeper"},
}
"""The fixtures of a directory whose users form a group."""

LONGEST_FIRST = ("spark", "clients", "packaging", "cluster", "interop", "simulation", "hostile", "storage_oracles")
"""Directories; all others follow."""


def name_group(item: pytest.Item) -> None:
    """Early: pytest-xdist reads the group before conftest files can change the collection."""
    group = group_of(item)
    item.add_marker(pytest.mark.xdist_group(group))
    if group in SERVERS:
        item.add_marker(pytest.mark.peers)


def put_long_groups_first(items: list[pytest.Item]) -> None:
    """Within a group, the order stays."""
    items.sort(key=_rank)


def check_groups_are_used(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Some versions of pytest and pytest-xdist do not go together: then every process would start every server."""
    is_grouped = hasattr(config, "workerinput") and config.getoption("loadgroup", False)
    if is_grouped and items and without_group(items[0].nodeid) == items[0].nodeid:
        raise pytest.UsageError("pytest-xdist ignores the groups of tests; see the versions in pyproject.toml")


def without_group(nodeid: str) -> str:
    """The name of a test as pytest knows it: pytest-xdist appends the group."""
    at = nodeid.rfind("@")
    return nodeid[:at] if at > nodeid.rfind("]") else nodeid


def group_of(item: pytest.Item) -> str:
    used = set(getattr(item, "fixturenames", ()))
    path = item.path.relative_to(TESTS)
    shared = (directory for directory, names in SERVERS.items() if path.is_relative_to(directory) and used & names)
    return next(shared, path.as_posix())


def _rank(item: pytest.Item) -> tuple[int, bool]:
    """Of a directory, the group that shares a server comes first."""
    directory = item.path.relative_to(TESTS).parts[0]
    place = LONGEST_FIRST.index(directory) if directory in LONGEST_FIRST else len(LONGEST_FIRST)
    return place, group_of(item) not in SERVERS
