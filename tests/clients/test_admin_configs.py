"""Configuration as the admin tells and changes it, of all that has one; librdkafka's admin looks on."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource as OtherResource

from barnabas import Admin, KafkaError
from barnabas.client.admin.configs import (
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ConfigType,
    Operation,
    ResourceType,
)
from barnabas.client.outcomes import PartlyFailed
from barnabas.core.errors import ErrorCode
from tests.clients.admin_work import administer, comes_to, judge, parted
from tests.peers import Broker, eventually


async def own(admin: Admin, type: ResourceType, name: str, source: ConfigSource) -> dict[str, str | None]:
    entries = await admin.configs.describe(type, name)
    return {entry.name: entry.value for entry in entries.values() if entry.source is source}


def test_a_topics_keys_are_set_and_returned(cluster: str, topic_name: str) -> None:
    async def work(admin: Admin) -> None:
        await admin.topics.create(topic_name, partitions=1, configs={"retention.ms": "1000000"})
        await admin.configs.alter(
            ResourceType.TOPIC,
            topic_name,
            set_={"segment.bytes": "2000000"},
            delete=["retention.ms"],
            append={"cleanup.policy": "compact"},
        )
        changed: dict[str, str | None] = {"segment.bytes": "2000000", "cleanup.policy": "delete,compact"}
        await comes_to(lambda: own(admin, ResourceType.TOPIC, topic_name, ConfigSource.TOPIC), changed)
        await admin.configs.alter(ResourceType.TOPIC, topic_name, subtract={"cleanup.policy": "delete"})

    administer(cluster, work)
    other = judge(cluster)
    resource = OtherResource(OtherResource.Type.TOPIC, topic_name)

    def told() -> tuple[str, str]:
        found: dict[str, Any] = other.describe_configs([resource])[resource].result(60)
        return found["segment.bytes"].value, found["cleanup.policy"].value

    eventually(told, ("2000000", "compact"))


def test_an_entry_tells_type_documentation_and_what_it_hides(cluster: str, topic_name: str) -> None:
    async def work(admin: Admin) -> None:
        await admin.topics.create(topic_name, partitions=1, configs={"retention.ms": "1234"})

        async def known() -> list[str]:
            found = await admin.configs.describe(ResourceType.TOPIC, topic_name, ["retention.ms"])
            return [entry.value or "" for entry in found.values()]

        await comes_to(known, ["1234"])
        keys = ["retention.ms", "cleanup.policy"]
        found = await admin.configs.describe(ResourceType.TOPIC, topic_name, keys, documentation=True, synonyms=True)
        assert list(found) == ["cleanup.policy", "retention.ms"]
        entry = found["retention.ms"]
        assert (entry.value, entry.source, entry.type) == ("1234", ConfigSource.TOPIC, ConfigType.LONG)
        assert entry.documentation
        assert (entry.read_only, entry.sensitive) == (False, False)
        assert (entry.synonyms[0].value, entry.synonyms[0].source) == ("1234", ConfigSource.TOPIC)
        policy = found["cleanup.policy"]
        assert (policy.type, policy.synonyms[-1].source) == (ConfigType.LIST, ConfigSource.DEFAULT)

    administer(cluster, work)


def test_one_resource_of_several_fails_by_itself(cluster: str, topic_name: str) -> None:
    there = ConfigResource(ResourceType.TOPIC, topic_name)
    absent = ConfigResource(ResourceType.TOPIC, f"{topic_name}-absent")
    change = [ConfigChange("retention.ms", Operation.SET, "5000")]

    async def work(admin: Admin) -> None:
        await admin.topics.create(topic_name, partitions=1)
        with pytest.raises(PartlyFailed) as caught:
            await admin.configs.alter_many({there: change, absent: change})
        assert parted(caught.value) == ({there}, {absent})
        assert caught.value.errors[absent].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await comes_to(lambda: own(admin, ResourceType.TOPIC, topic_name, ConfigSource.TOPIC), {"retention.ms": "5000"})
        with pytest.raises(PartlyFailed) as caught:
            await admin.configs.describe_many([there, absent], ["retention.ms"])
        assert caught.value.done[there]["retention.ms"].value == "5000"
        with pytest.raises(KafkaError, match=r"no\.such\.key") as refused:
            await admin.configs.alter(ResourceType.TOPIC, topic_name, set_={"no.such.key": "1"})
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        await admin.configs.alter(ResourceType.TOPIC, topic_name, set_={"retention.ms": "6000"}, validate_only=True)
        assert await own(admin, ResourceType.TOPIC, topic_name, ConfigSource.TOPIC) == {"retention.ms": "5000"}

    administer(cluster, work)


@pytest.mark.parametrize(("everywhere", "source"), [(False, ConfigSource.BROKER), (True, ConfigSource.CLUSTER)])
def test_a_broker_is_configured_by_itself_or_with_all(cluster: str, everywhere: bool, source: ConfigSource) -> None:
    key = "log.cleaner.backoff.ms"

    async def work(admin: Admin) -> None:
        here = str((await admin.cluster.describe()).brokers[0].node_id)
        default = (await admin.configs.describe(ResourceType.BROKER, here, [key]))[key].value
        value = str(int(default or 0) + 1)
        target = "" if everywhere else here

        async def held() -> tuple[str | None, ConfigSource]:
            entry = (await admin.configs.describe(ResourceType.BROKER, here, [key]))[key]
            return entry.value, entry.source

        await admin.configs.alter(ResourceType.BROKER, target, set_={key: value})
        try:
            await comes_to(held, (value, source))
        finally:
            await admin.configs.alter(ResourceType.BROKER, target, delete=[key])
        await comes_to(held, (default, ConfigSource.DEFAULT))
        with pytest.raises(KafkaError, match="broker 777 does not serve") as caught:
            await admin.configs.describe(ResourceType.BROKER, "777")
        assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE

    administer(cluster, work)


def test_resources_are_listed_by_type(cluster: str, topic_name: str) -> None:
    async def work(admin: Admin) -> None:
        await admin.topics.create(topic_name, partitions=1)
        topic = ConfigResource(ResourceType.TOPIC, topic_name)

        async def is_listed() -> bool:
            return topic in await admin.configs.list_resources([ResourceType.TOPIC])

        await comes_to(is_listed, True)
        brokers = await admin.configs.list_resources([ResourceType.BROKER])
        assert {resource.type for resource in brokers} == {ResourceType.BROKER}
        assert topic in await admin.configs.list_resources()

    administer(cluster, work)


def test_groups_loggers_and_client_metrics_have_configurations_on_kafka(kafka: Broker, topic_name: str) -> None:
    async def work(admin: Admin) -> None:
        await admin.configs.alter(ResourceType.GROUP, topic_name, set_={"consumer.session.timeout.ms": "5000"})
        session: dict[str, str | None] = {"consumer.session.timeout.ms": "5000"}
        await comes_to(lambda: own(admin, ResourceType.GROUP, topic_name, ConfigSource.GROUP), session)
        await admin.configs.alter(ResourceType.CLIENT_METRICS, topic_name, set_={"interval.ms": "60000"})
        interval: dict[str, str | None] = {"interval.ms": "60000"}
        await comes_to(
            lambda: own(admin, ResourceType.CLIENT_METRICS, topic_name, ConfigSource.CLIENT_METRICS), interval
        )
        here = str((await admin.cluster.describe()).brokers[0].node_id)
        assert "root" in await admin.configs.describe(ResourceType.BROKER_LOGGER, here)
        mine = {each for each in await admin.configs.list_resources() if each.name == topic_name}
        assert mine == {
            ConfigResource(ResourceType.GROUP, topic_name),
            ConfigResource(ResourceType.CLIENT_METRICS, topic_name),
        }

    administer(kafka.address, work)
