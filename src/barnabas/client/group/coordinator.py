"""The broker that coordinates a group."""

from __future__ import annotations

from barnabas.client.client import Client
from barnabas.client.coordinator import Coordinator
from barnabas.client.routes import KeyType


class GroupCoordinator(Coordinator):
    def __init__(self, client: Client, group_id: str) -> None:
        super().__init__(client, KeyType.GROUP, group_id)
