"""The cluster, its replicas, disks, features, quotas, users and rights as the admin tells and changes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclBindingFilter, AclPermissionType, ResourcePatternType
from confluent_kafka.admin import AclOperation as OtherOperation
from confluent_kafka.admin import ResourceType as OtherResourceType

from barnabas import Admin, KafkaError, TopicPartition
from barnabas.client.admin.acls import Acl, AclFilter, AclOperation, AclResourceType, PatternType, Permission
from barnabas.client.admin.features import UpdateType
from barnabas.client.admin.log_dirs import Replica
from barnabas.client.admin.quotas import ANYONE, DEFAULT, QuotaEntity
from barnabas.client.admin.tokens import Principal
from barnabas.client.admin.users import ScramCredential, ScramMechanism
from barnabas.client.connections import Address
from barnabas.client.outcomes import PartlyFailed
from barnabas.core.errors import ErrorCode
from tests.clients.admin_work import administer, comes_to, judge, parted, produce
from tests.peers import Broker, eventually, kafka_tool


async def create(admin: Admin, topic: str, partitions: int = 1) -> int:
    """The broker that leads it all, once it does."""
    await admin.topics.create(topic, partitions=partitions)

    async def leaders() -> int:
        try:
            found = await admin.topics.describe(topic)
        except KafkaError:
            return 0
        return sum(each.leader >= 0 for each in found.partitions)

    await comes_to(leaders, partitions)
    return (await admin.topics.describe(topic)).partitions[0].leader


def test_the_cluster_is_described(cluster: str) -> None:
    found = administer(cluster, lambda admin: admin.cluster.describe())
    [broker] = found.brokers
    assert str(broker.address) == cluster
    assert (found.controller_id, found.fenced) == (broker.node_id, frozenset())
    other = judge(cluster)
    assert other.describe_cluster().result(60).cluster_id == found.cluster_id


def test_a_broker_that_is_not_registered_cannot_be_forgotten(cluster: str) -> None:
    async def work(admin: Admin) -> None:
        with pytest.raises(KafkaError, match="cannot forget broker 777") as caught:
            await admin.cluster.unregister_broker(777)
        assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED

    administer(cluster, work)


def test_reassignments_are_refused_one_by_one_and_none_is_under_way(cluster: str, topic_name: str) -> None:
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)

    async def work(admin: Admin) -> None:
        here = await create(admin, topic_name, 2)
        with pytest.raises(PartlyFailed) as caught:
            await admin.reassignments.alter({first: [12345], second: [here]})
        assert caught.value.done == {second: None}
        assert caught.value.errors[first].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        with pytest.raises(PartlyFailed) as caught:
            await admin.reassignments.cancel([first])
        assert caught.value.errors[first].code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await admin.reassignments.list() == await admin.reassignments.list([first, second]) == []

    administer(cluster, work)


def test_elections_tell_where_none_was_needed(cluster: str, topic_name: str) -> None:
    first, absent = TopicPartition(topic_name, 0), TopicPartition(topic_name, 9)

    async def work(admin: Admin) -> None:
        await create(admin, topic_name)
        assert await admin.elections.preferred([first]) == {first: False}
        assert await admin.elections.unclean([first]) == {first: False}
        assert not any((await admin.elections.preferred()).values())
        with pytest.raises(PartlyFailed) as caught:
            await admin.elections.preferred([first, absent])
        assert caught.value.done == {first: False}
        assert caught.value.errors[absent].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    administer(cluster, work)


def test_log_dirs_tell_what_is_on_a_disk(cluster: str, topic_name: str) -> None:
    partition = TopicPartition(topic_name, 0)
    here = administer(cluster, lambda admin: create(admin, topic_name))
    produce(cluster, topic_name, 5)

    async def work(admin: Admin) -> str:
        found = await admin.log_dirs.describe(partitions=[partition])
        assert found.keys() == {here}
        [(directory, replica)] = [(each, replica) for each in found[here] for replica in each.replicas]
        assert (directory.error, directory.is_cordoned) == (None, False)
        assert (directory.total_bytes or 0) >= (directory.usable_bytes or 0) > 0
        assert (replica.partition, replica.offset_lag, replica.is_future) == (partition, 0, False)
        assert replica.size_bytes > 5
        assert await admin.log_dirs.replica_bytes(here, [partition]) == {partition: replica.size_bytes}
        with pytest.raises(PartlyFailed, match="broker 777 does not serve") as caught:
            await admin.log_dirs.describe([here, 777])
        assert caught.value.done.keys() == {here}
        return directory.path

    assert Path(administer(cluster, work), f"{topic_name}-0").is_dir()


def test_a_replica_moves_to_another_disk_on_kafka(kafka: Broker, topic_name: str) -> None:
    partition = TopicPartition(topic_name, 0)

    async def work(admin: Admin) -> None:
        here = await create(admin, topic_name)
        paths = [each.path for each in (await admin.log_dirs.describe([here]))[here]]
        assert len(paths) == 2

        async def place() -> list[str]:
            found = (await admin.log_dirs.describe([here], [partition]))[here]
            return [each.path for each in found for replica in each.replicas if not replica.is_future]

        [before] = await place()
        [after] = [path for path in paths if path != before]
        await admin.log_dirs.alter({Replica(partition, here): after})
        await comes_to(place, [after])
        with pytest.raises(PartlyFailed, match=f"cannot move {topic_name}-0 on broker {here} to /nowhere") as caught:
            await admin.log_dirs.alter({Replica(partition, here): "/nowhere"})
        assert caught.value.code is ErrorCode.LOG_DIR_NOT_FOUND

    administer(kafka.address, work)


def test_features_tell_levels_and_what_is_supported(cluster: str) -> None:
    found = administer(cluster, lambda admin: admin.features.describe())
    for name in ("group.version", "metadata.version", "transaction.version"):
        feature = found[name]
        assert (feature.name, feature.min_version <= feature.level <= feature.max_version) == (name, True)
    assert found["group.version"].level == 1


def test_features_are_updated_on_kafka(kafka: Broker) -> None:
    async def work(admin: Admin) -> None:
        level = (await admin.features.describe())["group.version"].level
        await admin.features.update({"group.version": level}, validate_only=True)
        with pytest.raises(PartlyFailed) as caught:
            await admin.features.update({"no.such.feature": 1})
        assert caught.value.code in (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FEATURE_UPDATE_FAILED)
        await admin.features.update({"group.version": 0}, type=UpdateType.SAFE_DOWNGRADE, validate_only=True)
        assert (await admin.features.describe())["group.version"].level == level

    administer(kafka.address, work)


def test_the_quorum_is_described_on_kafka(kafka: Broker) -> None:
    found = administer(kafka.address, lambda admin: admin.quorum.describe())
    assert [voter.replica_id for voter in found.voters] == [found.leader_id] == [1]
    assert found.voters[0].log_end_offset >= found.high_watermark > 0
    assert found.observers == ()


def test_voters_of_a_fixed_quorum_stay_on_kafka(kafka: Broker) -> None:
    async def work(admin: Admin) -> None:
        with pytest.raises(KafkaError, match=r"cannot add voter 9: .*kraft\.version") as caught:
            await admin.quorum.add_voter(9, b"d" * 16, {"CONTROLLER": Address("127.0.0.1", 1)})
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError, match=r"cannot remove voter 1: .*kraft\.version") as caught:
            await admin.quorum.remove_voter(1, b"d" * 16)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION

    administer(kafka.address, work)


TOKEN_CALLS: list[Callable[[Admin], Awaitable[object]]] = [
    lambda admin: admin.tokens.create(owner=Principal("alice"), renewers=[Principal("bob")], max_lifetime_ms=1000),
    lambda admin: admin.tokens.renew(b"secret", 1000),
    lambda admin: admin.tokens.expire(b"secret"),
    lambda admin: admin.tokens.describe([Principal("alice")]),
]


def test_tokens_are_refused_to_who_has_not_signed_in_on_kafka(kafka: Broker) -> None:
    async def work(admin: Admin) -> None:
        for call in TOKEN_CALLS:
            with pytest.raises(KafkaError, match="delegation token") as caught:
                await call(admin)
            assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    administer(kafka.address, work)


def test_quotas_are_set_and_removed_on_kafka(kafka: Broker, topic_name: str) -> None:
    alice = QuotaEntity(user=f"alice-{topic_name}", client_id=DEFAULT)
    address = QuotaEntity(ip="127.0.0.9")

    async def work(admin: Admin) -> None:
        async def told(**names: Any) -> dict[QuotaEntity, dict[str, float]]:
            return await admin.quotas.describe(**names)

        await admin.quotas.alter(
            {alice: {"producer_byte_rate": 1e6, "request_percentage": 50}, address: {"connection_creation_rate": 5}}
        )
        await comes_to(lambda: told(user=alice.user), {alice: {"producer_byte_rate": 1e6, "request_percentage": 50.0}})
        assert await told(user=alice.user, strict=True) == {}
        assert await told(ip=ANYONE) == {address: {"connection_creation_rate": 5.0}}
        assert alice in await told(client_id=DEFAULT)
        with pytest.raises(PartlyFailed) as caught:
            await admin.quotas.alter({alice: {"no_such_quota": 1}}, validate_only=True)
        assert caught.value.errors[alice].code is ErrorCode.INVALID_REQUEST
        await admin.quotas.alter({alice: {"request_percentage": None}, address: {"connection_creation_rate": None}})
        await comes_to(lambda: told(user=alice.user), {alice: {"producer_byte_rate": 1e6}})

    administer(kafka.address, work)
    shown = kafka_tool(
        "kafka.admin.ConfigCommand",
        "--bootstrap-server",
        kafka.address,
        "--describe",
        "--entity-type",
        "users",
        "--entity-name",
        str(alice.user),
        "--entity-type",
        "clients",
        "--entity-default",
    )
    assert "producer_byte_rate=1000000.0" in shown


def test_users_get_passwords_on_kafka(kafka: Broker, topic_name: str) -> None:
    async def work(admin: Admin) -> None:
        await admin.users.set_password(topic_name, "secret", mechanism=ScramMechanism.SCRAM_SHA_256, iterations=4096)
        await admin.users.set_password(topic_name, "secret", iterations=8192)
        both = {
            ScramCredential(ScramMechanism.SCRAM_SHA_256, 4096),
            ScramCredential(ScramMechanism.SCRAM_SHA_512, 8192),
        }

        async def told() -> set[ScramCredential]:
            return set((await admin.users.describe_many()).get(topic_name, ()))

        await comes_to(told, both)
        assert set(await admin.users.describe(topic_name)) == both
        with pytest.raises(KafkaError) as absent:
            await admin.users.describe(f"{topic_name}-absent")
        assert absent.value.code is ErrorCode.RESOURCE_NOT_FOUND
        with pytest.raises(KafkaError, match=f"cannot alter user '{topic_name}'") as caught:
            await admin.users.set_password(topic_name, "secret", iterations=1)
        assert caught.value.code is ErrorCode.UNACCEPTABLE_CREDENTIAL
        await admin.users.delete(topic_name, ScramMechanism.SCRAM_SHA_256)
        await comes_to(told, both - {ScramCredential(ScramMechanism.SCRAM_SHA_256, 4096)})

    administer(kafka.address, work)
    other = judge(kafka.address)
    found = other.describe_user_scram_credentials([topic_name])[topic_name].result(60)
    assert [(each.mechanism.name, each.iterations) for each in found.scram_credential_infos] == [
        ("SCRAM_SHA_512", 8192)
    ]


def test_access_control_is_created_told_and_deleted_on_kafka(kafka: Broker, topic_name: str) -> None:
    read = Acl(AclResourceType.TOPIC, topic_name, "User:alice", AclOperation.READ)
    write = Acl(
        AclResourceType.TOPIC,
        topic_name[:4],
        "User:bob",
        AclOperation.WRITE,
        Permission.DENY,
        "10.0.0.1",
        PatternType.PREFIXED,
    )
    wrong = Acl(AclResourceType.TOPIC, topic_name, "nobody", AclOperation.READ)

    async def set_up(admin: Admin) -> None:
        with pytest.raises(PartlyFailed) as caught:
            await admin.acls.create([read, write, wrong])
        assert parted(caught.value) == ({read, write}, {wrong})

        async def told() -> set[Acl]:
            matching = AclFilter(AclResourceType.TOPIC, topic_name, pattern_type=PatternType.MATCH)
            return set(await admin.acls.describe(matching))

        await comes_to(told, {read, write})
        assert {read, write} <= set(await admin.acls.describe())

    async def tear_down(admin: Admin) -> None:
        by_name = AclFilter(resource_name=topic_name)
        denied = AclFilter(permission=Permission.DENY, principal="User:bob")
        assert await admin.acls.delete([by_name, denied]) == {by_name: (read,), denied: (write,)}

    administer(kafka.address, set_up)
    other = judge(kafka.address)
    wanted = AclBindingFilter(
        OtherResourceType.TOPIC,
        topic_name,
        ResourcePatternType.LITERAL,
        None,
        None,
        OtherOperation.ANY,
        AclPermissionType.ANY,
    )
    eventually(
        lambda: [(acl.principal, acl.operation.name) for acl in other.describe_acls(wanted).result(60)],
        [("User:alice", "READ")],
    )
    administer(kafka.address, tear_down)
    eventually(lambda: other.describe_acls(wanted).result(60), [])


CALLS_OF_KAFKA_ALONE: dict[str, Callable[[Admin], Awaitable[object]]] = {
    "DescribeQuorum": lambda admin: admin.quorum.describe(),
    "AddRaftVoter": lambda admin: admin.quorum.add_voter(1, b"d" * 16, {}),
    "RemoveRaftVoter": lambda admin: admin.quorum.remove_voter(1, b"d" * 16),
    "CreateDelegationToken": lambda admin: admin.tokens.create(),
    "RenewDelegationToken": lambda admin: admin.tokens.renew(b""),
    "ExpireDelegationToken": lambda admin: admin.tokens.expire(b""),
    "DescribeDelegationToken": lambda admin: admin.tokens.describe(),
    "UpdateFeatures": lambda admin: admin.features.update({"group.version": 1}),
    "DescribeClientQuotas": lambda admin: admin.quotas.describe(),
    "AlterClientQuotas": lambda admin: admin.quotas.alter({QuotaEntity(user="a"): {"producer_byte_rate": 1}}),
    "DescribeUserScramCredentials": lambda admin: admin.users.describe("a"),
    "AlterUserScramCredentials": lambda admin: admin.users.set_password("a", "b"),
    "DescribeShareGroupOffsets": lambda admin: admin.share_groups.list_offsets("g"),
    "AlterShareGroupOffsets": lambda admin: admin.share_groups.alter_offsets("g", {TopicPartition("t", 0): 0}),
    "DeleteShareGroupOffsets": lambda admin: admin.share_groups.delete_offsets("g", ["t"]),
    "StreamsGroupDescribe": lambda admin: admin.streams_groups.describe("g"),
    "AlterReplicaLogDirs": lambda admin: admin.log_dirs.alter({Replica(TopicPartition("t", 0), 1): "/tmp"}),
}


def test_what_a_broker_does_not_serve_is_told_by_name(broker: Broker) -> None:
    async def work(admin: Admin) -> None:
        for name, call in CALLS_OF_KAFKA_ALONE.items():
            with pytest.raises(KafkaError, match=f"broker .* does not serve {name}$") as caught:
                await call(admin)
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION

    administer(broker.address, work)


def test_access_control_without_an_authorizer_is_security_disabled(broker: Broker) -> None:
    rule = Acl(AclResourceType.TOPIC, "t", "User:a", AclOperation.READ)

    async def work(admin: Admin) -> None:
        for call in (admin.acls.describe(), admin.acls.create([rule]), admin.acls.delete([AclFilter()])):
            with pytest.raises(KafkaError, match="No Authorizer is configured") as caught:
                await call
            assert caught.value.code is ErrorCode.SECURITY_DISABLED

    administer(broker.address, work)
