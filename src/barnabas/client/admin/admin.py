"""The admin: everything that can be asked of a cluster and changed in it, by nouns.

    async with Admin("host:9092") as admin:
        await admin.topics.create("orders", partitions=3)

A call about one thing gives its value or raises its error. A call about many (`..._many`, or one that takes a mapping)
gives all values, or raises `PartlyFailed`, which has every error and every value.

A noun is imported when it is first used: a command pays only for its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from barnabas.client.client import Client
from barnabas.client.options import at_least, names_options
from barnabas.client.session import Session

if TYPE_CHECKING:
    from barnabas.client.admin.acls import Acls
    from barnabas.client.admin.cluster import Cluster
    from barnabas.client.admin.configs import Configs
    from barnabas.client.admin.elections import Elections
    from barnabas.client.admin.features import Features
    from barnabas.client.admin.groups import Groups
    from barnabas.client.admin.log_dirs import LogDirs
    from barnabas.client.admin.offsets import Offsets
    from barnabas.client.admin.partitions import Partitions
    from barnabas.client.admin.producers import Producers
    from barnabas.client.admin.quorum import Quorum
    from barnabas.client.admin.quotas import Quotas
    from barnabas.client.admin.reassignments import Reassignments
    from barnabas.client.admin.records import Records
    from barnabas.client.admin.share_groups import ShareGroups
    from barnabas.client.admin.streams_groups import StreamsGroups
    from barnabas.client.admin.tokens import Tokens
    from barnabas.client.admin.topics import Topics
    from barnabas.client.admin.transactions import Transactions
    from barnabas.client.admin.users import Users


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
    def topics(self) -> Topics:
        from barnabas.client.admin.topics import Topics

        return Topics(self._session.check())

    @property
    def partitions(self) -> Partitions:
        from barnabas.client.admin.partitions import Partitions

        return Partitions(self._session.check())

    @property
    def records(self) -> Records:
        from barnabas.client.admin.records import Records

        return Records(self._session.check())

    @property
    def configs(self) -> Configs:
        from barnabas.client.admin.configs import Configs

        return Configs(self._session.check())

    @property
    def groups(self) -> Groups:
        from barnabas.client.admin.groups import Groups

        return Groups(self._session.check())

    @property
    def share_groups(self) -> ShareGroups:
        from barnabas.client.admin.share_groups import ShareGroups

        return ShareGroups(self._session.check())

    @property
    def streams_groups(self) -> StreamsGroups:
        from barnabas.client.admin.streams_groups import StreamsGroups

        return StreamsGroups(self._session.check())

    @property
    def offsets(self) -> Offsets:
        from barnabas.client.admin.offsets import Offsets

        return Offsets(self._session.check())

    @property
    def transactions(self) -> Transactions:
        from barnabas.client.admin.transactions import Transactions

        return Transactions(self._session.check())

    @property
    def producers(self) -> Producers:
        from barnabas.client.admin.producers import Producers

        return Producers(self._session.check())

    @property
    def reassignments(self) -> Reassignments:
        from barnabas.client.admin.reassignments import Reassignments

        return Reassignments(self._session.check())

    @property
    def elections(self) -> Elections:
        from barnabas.client.admin.elections import Elections

        return Elections(self._session.check())

    @property
    def log_dirs(self) -> LogDirs:
        from barnabas.client.admin.log_dirs import LogDirs

        return LogDirs(self._session.check())

    @property
    def cluster(self) -> Cluster:
        from barnabas.client.admin.cluster import Cluster

        return Cluster(self._session.check())

    @property
    def features(self) -> Features:
        from barnabas.client.admin.features import Features

        return Features(self._session.check())

    @property
    def quorum(self) -> Quorum:
        from barnabas.client.admin.quorum import Quorum

        return Quorum(self._session.check())

    @property
    def quotas(self) -> Quotas:
        from barnabas.client.admin.quotas import Quotas

        return Quotas(self._session.check())

    @property
    def users(self) -> Users:
        from barnabas.client.admin.users import Users

        return Users(self._session.check())

    @property
    def acls(self) -> Acls:
        from barnabas.client.admin.acls import Acls

        return Acls(self._session.check())

    @property
    def tokens(self) -> Tokens:
        from barnabas.client.admin.tokens import Tokens

        return Tokens(self._session.check())
