"""Configurations of topics and brokers: set, deleted, appended to, replaced, refused."""

from __future__ import annotations

import pytest

from barnabas.cluster.controller import decide
from barnabas.cluster.events import (
    AlterConfigs,
    ConfigChange,
    CreateTopics,
    IncrementalAlterConfigs,
    NewTopic,
)
from barnabas.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigResource
from barnabas.core.errors import ErrorCode
from tests.unit.cluster.clusters import TestCluster

SET, DELETE, APPEND, SUBTRACT = range(4)
ORDERS = ConfigResource(TOPIC_RESOURCE, "orders")
ALL_BROKERS = ConfigResource(BROKER_RESOURCE, "")
MIN_ISR = "min.insync.replicas"


@pytest.fixture
def cluster() -> TestCluster:
    cluster = TestCluster(1)
    cluster.submit(CreateTopics((NewTopic("orders", configs={"retention.ms": "1", "segment.bytes": "2097152"}),)))
    return cluster


def change(cluster: TestCluster, resource: ConfigResource, *changes: tuple[str, int, str | None]) -> ErrorCode | None:
    event = IncrementalAlterConfigs(((resource, tuple(ConfigChange(*one) for one in changes)),))
    (result,) = cluster.submit(event)
    return result.error.code if result.error else None


def test_keys_are_changed_one_by_one(cluster: TestCluster) -> None:
    assert change(cluster, ORDERS, ("retention.ms", DELETE, None), ("flush.ms", SET, "7")) is None
    assert cluster.image.config(*ORDERS) == {"segment.bytes": "2097152", "flush.ms": "7"}


def test_a_list_is_appended_to_and_subtracted_from(cluster: TestCluster) -> None:
    assert change(cluster, ORDERS, ("cleanup.policy", APPEND, "delete")) is None
    assert cluster.image.config(*ORDERS)["cleanup.policy"] == "delete"
    assert change(cluster, ORDERS, ("retention.ms", APPEND, "5")) is ErrorCode.INVALID_CONFIG


def test_replacing_takes_away_what_is_not_named(cluster: TestCluster) -> None:
    (result,) = cluster.submit(AlterConfigs(((ORDERS, (("flush.ms", "7"),)),)))
    assert result.error is None
    assert cluster.image.config(*ORDERS) == {"flush.ms": "7"}


def test_brokers_have_dynamic_configurations_each_and_all(cluster: TestCluster) -> None:
    assert change(cluster, ALL_BROKERS, ("log.retention.ms", SET, "1000")) is None
    assert change(cluster, ConfigResource(BROKER_RESOURCE, "1"), ("log.retention.ms", SET, "2000")) is None
    assert cluster.image.config(BROKER_RESOURCE, "") == {"log.retention.ms": "1000", MIN_ISR: "1"}
    assert cluster.image.config(BROKER_RESOURCE, "1") == {"log.retention.ms": "2000"}


def test_the_first_broker_makes_min_isr_a_setting_of_all() -> None:
    cluster = TestCluster(1, min_insync_replicas="2")
    assert cluster.image.config(BROKER_RESOURCE, "") == {MIN_ISR: "2"}
    assert change(cluster, ALL_BROKERS, (MIN_ISR, SET, "3")) is None
    cluster.register(2)
    assert cluster.image.config(BROKER_RESOURCE, "") == {MIN_ISR: "3"}


def test_min_isr_is_the_same_for_all_brokers(cluster: TestCluster) -> None:
    alone = ConfigResource(BROKER_RESOURCE, "1")
    assert change(cluster, ALL_BROKERS, (MIN_ISR, DELETE, None)) is ErrorCode.INVALID_CONFIG
    assert change(cluster, alone, (MIN_ISR, SET, "2")) is ErrorCode.INVALID_CONFIG
    (replaced,) = cluster.submit(AlterConfigs(((ALL_BROKERS, (("log.retention.ms", "1000"),)),)))
    assert replaced.error is not None
    assert replaced.error.message == "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    assert cluster.image.config(BROKER_RESOURCE, "") == {MIN_ISR: "1"}
    assert cluster.image.config(BROKER_RESOURCE, "1") == {}


def test_a_change_that_changes_nothing_writes_nothing(cluster: TestCluster) -> None:
    index = cluster.image.index
    assert change(cluster, ORDERS, ("retention.ms", SET, "1"), ("flush.ms", DELETE, None)) is None
    assert cluster.image.index == index


@pytest.mark.parametrize(
    ("resource", "key", "operation", "value", "code"),
    [
        (ORDERS, "retention.ms", SET, "soon", ErrorCode.INVALID_CONFIG),
        (ORDERS, "retenton.ms", SET, "1", ErrorCode.INVALID_CONFIG),
        (ORDERS, "retention.ms", SET, None, ErrorCode.INVALID_CONFIG),
        (ORDERS, "retention.ms", 9, "1", ErrorCode.INVALID_REQUEST),
        (ORDERS, "compression.type", SET, "x" * 40_000, ErrorCode.INVALID_CONFIG),
        (ConfigResource(TOPIC_RESOURCE, "none"), "retention.ms", SET, "1", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResource(BROKER_RESOURCE, "9"), "log.retention.ms", SET, "1", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ConfigResource(BROKER_RESOURCE, "x"), "log.retention.ms", SET, "1", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ConfigResource(BROKER_RESOURCE, "1" * 9999), "log.retention.ms", SET, "1", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ALL_BROKERS, "log.dirs", SET, "/tmp/x", ErrorCode.INVALID_CONFIG),
        (ConfigResource(16, "metrics"), "interval.ms", SET, "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_set_is_refused_and_nothing_of_it_is_kept(
    cluster: TestCluster, resource: ConfigResource, key: str, operation: int, value: str | None, code: ErrorCode
) -> None:
    index = cluster.image.index
    assert change(cluster, resource, ("flush.ms", DELETE, None), (key, operation, value)) is code
    assert cluster.image.index == index


def test_resources_are_decided_one_by_one_and_none_may_come_twice(cluster: TestCluster) -> None:
    none = ConfigResource(TOPIC_RESOURCE, "none")
    values = (("flush.ms", "7"),)
    good, bad = cluster.submit(AlterConfigs(((ORDERS, values), (none, values))))
    assert good.error is None
    assert bad.error is not None
    results = cluster.submit(AlterConfigs(((ORDERS, ()), (ORDERS, values))))
    assert [result.error.code for result in results if result.error] == [ErrorCode.INVALID_REQUEST] * 2


def test_validation_alone_writes_nothing(cluster: TestCluster) -> None:
    index = cluster.image.index
    changes = (ConfigChange("flush.ms", SET, "7"),)
    (result,) = cluster.submit(IncrementalAlterConfigs(((ORDERS, changes),), validate_only=True))
    assert result.error is None
    assert cluster.image.index == index


def test_a_key_of_kafkas_without_effect_is_accepted_with_a_warning(cluster: TestCluster) -> None:
    event = AlterConfigs(((ORDERS, (("preallocate", "true"),)),))
    outcome = decide(cluster.image, event, cluster.rng, cluster.config)
    assert len(outcome.warnings) == 1
    assert "has no effect" in outcome.warnings[0]
