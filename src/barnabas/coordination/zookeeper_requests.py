"""What can be asked of ZooKeeper, as functions that queue it with kazoo's client, or add it to a transaction."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

Request: TypeAlias = Callable[[Any], Any]
"""Queues one request with kazoo's client, and gives the result to come."""

Step: TypeAlias = Callable[[Any], None]
"""Adds one step to a transaction of kazoo's."""


def get(path: str) -> Request:
    return lambda client: client.get_async(path)


def sync(path: str) -> Request:
    """What is asked behind this on the same connection sees all that was committed before, on whichever server."""
    return lambda client: client.sync_async(path)


def children(path: str) -> Request:
    return lambda client: client.get_children_async(path)


def arm(path: str, watcher: Callable[[Any], None]) -> Request:
    """Tells whether the node is there; the watcher is called once when it comes, goes or changes."""
    return lambda client: client.exists_async(path, watcher)


def create_now(path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> Request:
    return lambda client: client.create_async(path, data, ephemeral=ephemeral, sequence=sequence)


def ensure_path(path: str) -> Request:
    return lambda client: client.ensure_path_async(path)


def transaction(*steps: Step) -> Request:
    """All of them or none."""

    def commit(client: Any) -> Any:
        together = client.transaction()
        for step in steps:
            step(together)
        return together.commit_async()

    return commit


def create(path: str, data: bytes = b"", *, ephemeral: bool = False) -> Step:
    return lambda together: together.create(path, data, ephemeral=ephemeral)


def set_data(path: str, data: bytes, version: int) -> Step:
    return lambda together: together.set_data(path, data, version)


def check(path: str, version: int) -> Step:
    return lambda together: together.check(path, version)


def delete(path: str) -> Step:
    return lambda together: together.delete(path)


def to_json(**facts: object) -> bytes:
    return json.dumps(facts).encode()


def facts(found: tuple[bytes, Any]) -> dict[str, Any]:
    """What a node holds whose data came from `to_json`."""
    decoded: dict[str, Any] = json.loads(found[0])
    return decoded
