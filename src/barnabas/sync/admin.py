"""The admin without async: the same nouns with the same methods.

with Admin("host:9092") as admin:
    admin.topics.create("orders", partitions=3)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from barnabas.client.admin import (
    acls,
    cluster,
    configs,
    elections,
    features,
    groups,
    log_dirs,
    offsets,
    partitions,
    producers,
    quorum,
    quotas,
    reassignments,
    records,
    share_groups,
    streams_groups,
    tokens,
    topics,
    transactions,
    users,
)
from barnabas.client.admin.admin import Admin as AsyncAdmin
from barnabas.sync.facade import Client, Facade, options_of, waits

T = TypeVar("T")
A_co = TypeVar("A_co", covariant=True)


class Noun(Facade[A_co]):
    """Lives as long as its admin."""

    def __init__(self, admin: Admin, made: A_co) -> None:
        self._admin = admin
        self._async = made

    def _run(self, work: Coroutine[Any, Any, T], unclaimed: Callable[[T], None] | None = None) -> T:
        return self._admin._run(work, unclaimed)


class Topics(Noun[topics.Topics]):
    create = waits(topics.Topics.create)
    create_many = waits(topics.Topics.create_many)
    delete = waits(topics.Topics.delete)
    delete_many = waits(topics.Topics.delete_many)
    delete_by_id = waits(topics.Topics.delete_by_id)
    describe = waits(topics.Topics.describe)
    describe_many = waits(topics.Topics.describe_many)
    describe_by_id = waits(topics.Topics.describe_by_id)
    list = waits(topics.Topics.list)


class Partitions(Noun[partitions.Partitions]):
    create = waits(partitions.Partitions.create)
    create_many = waits(partitions.Partitions.create_many)
    list_offsets = waits(partitions.Partitions.list_offsets)
    states = waits(partitions.Partitions.states)


class Records(Noun[records.Records]):
    delete = waits(records.Records.delete)


class Configs(Noun[configs.Configs]):
    describe = waits(configs.Configs.describe)
    describe_many = waits(configs.Configs.describe_many)
    alter = waits(configs.Configs.alter)
    alter_many = waits(configs.Configs.alter_many)
    list_resources = waits(configs.Configs.list_resources)


class Groups(Noun[groups.Groups]):
    list = waits(groups.Groups.list)
    describe = waits(groups.Groups.describe)
    describe_many = waits(groups.Groups.describe_many)
    delete = waits(groups.Groups.delete)
    delete_many = waits(groups.Groups.delete_many)
    remove_members = waits(groups.Groups.remove_members)
    remove_all_members = waits(groups.Groups.remove_all_members)


class ShareGroups(Noun[share_groups.ShareGroups]):
    list_offsets = waits(share_groups.ShareGroups.list_offsets)
    list_offsets_many = waits(share_groups.ShareGroups.list_offsets_many)
    alter_offsets = waits(share_groups.ShareGroups.alter_offsets)
    delete_offsets = waits(share_groups.ShareGroups.delete_offsets)


class StreamsGroups(Noun[streams_groups.StreamsGroups]):
    describe = waits(streams_groups.StreamsGroups.describe)
    describe_many = waits(streams_groups.StreamsGroups.describe_many)


class Offsets(Noun[offsets.Offsets]):
    list = waits(offsets.Offsets.list)
    list_many = waits(offsets.Offsets.list_many)
    lag = waits(offsets.Offsets.lag)
    alter = waits(offsets.Offsets.alter)
    reset = waits(offsets.Offsets.reset)
    delete = waits(offsets.Offsets.delete)


class Transactions(Noun[transactions.Transactions]):
    list = waits(transactions.Transactions.list)
    describe = waits(transactions.Transactions.describe)
    describe_many = waits(transactions.Transactions.describe_many)
    end = waits(transactions.Transactions.end)
    end_many = waits(transactions.Transactions.end_many)
    abort = waits(transactions.Transactions.abort)
    fence = waits(transactions.Transactions.fence)
    fence_many = waits(transactions.Transactions.fence_many)


class Producers(Noun[producers.Producers]):
    describe = waits(producers.Producers.describe)
    describe_many = waits(producers.Producers.describe_many)


class Reassignments(Noun[reassignments.Reassignments]):
    alter = waits(reassignments.Reassignments.alter)
    cancel = waits(reassignments.Reassignments.cancel)
    list = waits(reassignments.Reassignments.list)


class Elections(Noun[elections.Elections]):
    preferred = waits(elections.Elections.preferred)
    unclean = waits(elections.Elections.unclean)


class LogDirs(Noun[log_dirs.LogDirs]):
    describe = waits(log_dirs.LogDirs.describe)
    replica_bytes = waits(log_dirs.LogDirs.replica_bytes)
    alter = waits(log_dirs.LogDirs.alter)


class Cluster(Noun[cluster.Cluster]):
    describe = waits(cluster.Cluster.describe)
    unregister_broker = waits(cluster.Cluster.unregister_broker)


class Features(Noun[features.Features]):
    describe = waits(features.Features.describe)
    update = waits(features.Features.update)


class Quorum(Noun[quorum.Quorum]):
    describe = waits(quorum.Quorum.describe)
    add_voter = waits(quorum.Quorum.add_voter)
    remove_voter = waits(quorum.Quorum.remove_voter)


class Quotas(Noun[quotas.Quotas]):
    describe = waits(quotas.Quotas.describe)
    alter = waits(quotas.Quotas.alter)


class Users(Noun[users.Users]):
    describe = waits(users.Users.describe)
    describe_many = waits(users.Users.describe_many)
    set_password = waits(users.Users.set_password)
    delete = waits(users.Users.delete)


class Acls(Noun[acls.Acls]):
    describe = waits(acls.Acls.describe)
    create = waits(acls.Acls.create)
    delete = waits(acls.Acls.delete)


class Tokens(Noun[tokens.Tokens]):
    create = waits(tokens.Tokens.create)
    renew = waits(tokens.Tokens.renew)
    expire = waits(tokens.Tokens.expire)
    describe = waits(tokens.Tokens.describe)


class Admin(Client[AsyncAdmin]):
    """As `barnabas.Admin`."""

    @options_of(AsyncAdmin)
    def __init__(self, cluster: str, **options: Any) -> None:
        super().__init__(AsyncAdmin(cluster, **options), cluster)

    def _noun(self, noun: Callable[[AsyncAdmin], T]) -> T:
        async def work() -> T:
            return noun(self._async)

        return self._run(work())

    @property
    def topics(self) -> Topics:
        return Topics(self, self._noun(lambda admin: admin.topics))

    @property
    def partitions(self) -> Partitions:
        return Partitions(self, self._noun(lambda admin: admin.partitions))

    @property
    def records(self) -> Records:
        return Records(self, self._noun(lambda admin: admin.records))

    @property
    def configs(self) -> Configs:
        return Configs(self, self._noun(lambda admin: admin.configs))

    @property
    def groups(self) -> Groups:
        return Groups(self, self._noun(lambda admin: admin.groups))

    @property
    def share_groups(self) -> ShareGroups:
        return ShareGroups(self, self._noun(lambda admin: admin.share_groups))

    @property
    def streams_groups(self) -> StreamsGroups:
        return StreamsGroups(self, self._noun(lambda admin: admin.streams_groups))

    @property
    def offsets(self) -> Offsets:
        return Offsets(self, self._noun(lambda admin: admin.offsets))

    @property
    def transactions(self) -> Transactions:
        return Transactions(self, self._noun(lambda admin: admin.transactions))

    @property
    def producers(self) -> Producers:
        return Producers(self, self._noun(lambda admin: admin.producers))

    @property
    def reassignments(self) -> Reassignments:
        return Reassignments(self, self._noun(lambda admin: admin.reassignments))

    @property
    def elections(self) -> Elections:
        return Elections(self, self._noun(lambda admin: admin.elections))

    @property
    def log_dirs(self) -> LogDirs:
        return LogDirs(self, self._noun(lambda admin: admin.log_dirs))

    @property
    def cluster(self) -> Cluster:
        return Cluster(self, self._noun(lambda admin: admin.cluster))

    @property
    def features(self) -> Features:
        return Features(self, self._noun(lambda admin: admin.features))

    @property
    def quorum(self) -> Quorum:
        return Quorum(self, self._noun(lambda admin: admin.quorum))

    @property
    def quotas(self) -> Quotas:
        return Quotas(self, self._noun(lambda admin: admin.quotas))

    @property
    def users(self) -> Users:
        return Users(self, self._noun(lambda admin: admin.users))

    @property
    def acls(self) -> Acls:
        return Acls(self, self._noun(lambda admin: admin.acls))

    @property
    def tokens(self) -> Tokens:
        return Tokens(self, self._noun(lambda admin: admin.tokens))
