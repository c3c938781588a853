"""The admin: everything that can be asked of a cluster and changed in it, by nouns.

    async with Admin("host:9092") as admin:
        await admin.topics.create("orders", partitions=3)

A call about one thing gives its value or raises its error. A call about many (`..._many`, or one that takes a mapping)
gives all values, or raises `PartlyFailed`, which has every error and every value.
"""

from __future__ import annotations

from typing import Self

from barnabas.client.admin.groups import Groups
from barnabas.client.admin.offsets import Offsets
from barnabas.client.admin.producers import Producers
from barnabas.client.admin.transactions import Transactions
from barnabas.client.client import Client
from barnabas.client.options import at_least, names_options
from barnabas.client.session import Session


@names_options
class Admin:
    """Takes the address of a cluster, or a client that is open already; owned by the loop that enters it."""

    def __init__(
        self,
        cluster: str | Client,
        *,
        client_id: str = "barnabas-admin",
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        retry_timeout_ms: int = 30_000,
    ) -> None:
        self._session = Session(
            self,
            cluster,
            client_id=client_id,
            connect_timeout_ms=at_least("connect_timeout_ms", connect_timeout_ms, 1),
            request_timeout_ms=at_least("request_timeout_ms", request_timeout_ms, 1),
            retry_timeout_ms=at_least("retry_timeout_ms", retry_timeout_ms, 0),
        )

    async def __aenter__(self) -> Self:
        await self._session.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    @property
    def groups(self) -> Groups:
        return Groups(self._session.check())

    @property
    def offsets(self) -> Offsets:
        return Offsets(self._session.check())

    @property
    def transactions(self) -> Transactions:
        return Transactions(self._session.check())

    @property
    def producers(self) -> Producers:
        return Producers(self._session.check())
