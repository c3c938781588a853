"""The fold of records into images: what each record does, what is shared, what a delta tells, what a snapshot keeps."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cluster import records as r
from barnabas.cluster.delta import Delta, changes
from barnabas.cluster.fold import BadRecord, apply
from barnabas.cluster.image import (
    EMPTY,
    TOPIC_RESOURCE,
    AccessControlEntry,
    ConfigResource,
    Image,
    ScramCredential,
    ScramKey,
)
from barnabas.cluster.snapshot import snapshot_records

ONE, TWO = b"1" * 16, b"2" * 16


def fold(*records: r.Record, onto: Image = EMPTY) -> Image:
    return apply(onto, records, onto.index + len(records))


def partition(number: int, topic_id: bytes = ONE) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[ONE, TWO],
    )


def topic(name: str = "orders", topic_id: bytes = ONE, partitions: int = 2) -> list[r.Record]:
    record = r.TopicRecord(name=name, topic_id=topic_id)
    return [record, *(partition(number, topic_id) for number in range(partitions))]


def test_a_change_that_names_a_leader_raises_both_epochs_and_any_other_only_the_partition_epoch() -> None:
    image = fold(*topic())
    image = fold(r.PartitionChangeRecord(partition_id=1, topic_id=ONE, isr=[1]), onto=image)
    changed = image.topics["orders"].partitions[1]
    assert (changed.isr, changed.leader, changed.leader_epoch, changed.partition_epoch) == ((1,), 1, 0, 1)
    image = fold(r.PartitionChangeRecord(partition_id=1, topic_id=ONE, leader=-1), onto=image)
    changed = image.topics["orders"].partitions[1]
    assert (changed.isr, changed.leader, changed.leader_epoch, changed.partition_epoch) == ((1,), -1, 1, 2)


def test_a_partition_change_sets_what_it_names_and_leaves_the_rest() -> None:
    image = fold(
        *topic(),
        r.PartitionChangeRecord(
            partition_id=0,
            topic_id=ONE,
            replicas=[1, 2, 3],
            adding_replicas=[3],
            removing_replicas=[2],
            directories=[ONE, TWO, ONE],
            leader_recovery_state=1,
            eligible_leader_replicas=[2],
            last_known_elr=[3],
        ),
    )
    found = image.topics["orders"].partitions[0]
    assert (found.replicas, found.adding_replicas, found.removing_replicas) == ((1, 2, 3), (3,), (2,))
    assert (found.directories, found.leader_recovery_state) == ((ONE, TWO, ONE), 1)
    assert (found.eligible_leader_replicas, found.last_known_elr) == ((2,), (3,))
    assert (found.isr, found.leader) == ((1, 2), 1)
    cleared = fold(r.ClearElrRecord(), onto=image).topics["orders"]
    assert cleared.partitions[0].eligible_leader_replicas == cleared.partitions[0].last_known_elr == ()
    assert cleared.partitions[1] is image.topics["orders"].partitions[1]


def test_a_topic_goes_with_its_configuration_and_its_name_is_free_again() -> None:
    config = r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="orders", name="retention.ms", value="1")
    image = fold(*topic(), config)
    assert image.config(TOPIC_RESOURCE, "orders") == {"retention.ms": "1"}
    assert fold(r.RemoveTopicRecord(topic_id=ONE), onto=image) == Image(index=image.index + 1)
    again = fold(r.RemoveTopicRecord(topic_id=ONE), *topic(topic_id=TWO, partitions=1), onto=image)
    assert again.topic_by_id(ONE) is None
    assert again.topic_by_id(TWO) is again.topics["orders"]
    assert len(again.topics["orders"].partitions) == 1
    delta = changes(image, again)
    assert [gone.id for gone in delta.deleted] == [ONE]
    assert [new.id for new in delta.created] == [TWO]
    assert not delta.partitions


def test_a_delta_names_exactly_what_changed() -> None:
    image = fold(*topic(), *topic("audit", TWO))
    assert changes(image, image) == Delta()
    config = r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="audit", name="retention.ms", value="1")
    after = fold(r.PartitionChangeRecord(partition_id=1, topic_id=ONE, leader=2), partition(2), config, onto=image)
    assert changes(image, after) == Delta(
        partitions={"orders": (1, 2)}, configs=frozenset({ConfigResource(TOPIC_RESOURCE, "audit")})
    )
    assert changes(after, fold(r.FeatureLevelRecord(name="f", feature_level=1), onto=after)) == Delta(features=True)


def test_a_configuration_a_quota_a_feature_and_an_acl_can_be_taken_away_again() -> None:
    entity = [
        r.EntityData(entity_type="user", entity_name="ada"),
        r.EntityData(entity_type="client-id", entity_name=None),
    ]
    entry = AccessControlEntry(2, "orders", 3, "User:ada", "*", 3, 3)
    image = fold(
        r.ConfigRecord(resource_type=4, resource_name="", name="k", value="v"),
        r.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1024.0),
        r.FeatureLevelRecord(name="f", feature_level=2),
        r.AccessControlEntryRecord(id=ONE, **entry._asdict()),
        r.UserScramCredentialRecord(
            name="ada", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        r.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000),
    )
    assert image.quotas == {frozenset({("user", "ada"), ("client-id", None)}): {"producer_byte_rate": 1024.0}}
    assert image.acls == {ONE: entry}
    assert image.scram == {ScramKey("ada", 1): ScramCredential(b"s", b"k", b"v", 4096)}
    assert image.next_producer_id == 1000
    bare = fold(
        r.ConfigRecord(resource_type=4, resource_name="", name="k", value=None),
        r.ClientQuotaRecord(entity=entity, key="producer_byte_rate", remove=True),
        r.FeatureLevelRecord(name="f", feature_level=0),
        r.RemoveAccessControlEntryRecord(id=ONE),
        r.RemoveUserScramCredentialRecord(name="ada", mechanism=1),
        onto=image,
    )
    assert bare == Image(index=11, next_producer_id=1000)


def test_a_registration_changes_only_in_what_a_record_names() -> None:
    image = fold(r.RegisterBrokerRecord(broker_id=1, broker_epoch=7, rack="r", log_dirs=[ONE]))
    assert image.brokers[1].fenced
    for change, fenced, stopping in [
        (r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1), False, False),
        (r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1), False, True),
        (r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=1), True, True),
        (r.UnfenceBrokerRecord(id=1, epoch=7), False, True),
        (r.FenceBrokerRecord(id=1, epoch=7), True, True),
    ]:
        image = fold(change, onto=image)
        broker = image.brokers[1]
        assert (broker.fenced, broker.in_controlled_shutdown, broker.log_dirs) == (fenced, stopping, (ONE,))
    assert not fold(r.UnregisterBrokerRecord(broker_id=1, broker_epoch=7), onto=image).brokers


@pytest.mark.parametrize(
    "record",
    [
        r.PartitionRecord(partition_id=3, topic_id=ONE),
        r.PartitionRecord(partition_id=0, topic_id=TWO),
        r.PartitionChangeRecord(partition_id=9, topic_id=ONE),
        r.TopicRecord(name="orders", topic_id=TWO),
        r.RemoveTopicRecord(topic_id=TWO),
        r.ClearElrRecord(topic_name="none"),
        r.UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1),
        r.RemoveAccessControlEntryRecord(id=ONE),
        r.RemoveUserScramCredentialRecord(name="ada"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_does_not_fit_the_image_is_refused_and_leaves_it_alone(record: r.Record) -> None:
    image = fold(*topic())
    with pytest.raises(BadRecord, match=type(record).__name__):
        fold(record, onto=image)
    assert image == fold(*topic())


def test_an_image_shares_what_did_not_change() -> None:
    before = fold(*topic(), *topic("audit", TWO))
    after = fold(r.PartitionChangeRecord(partition_id=1, topic_id=ONE, leader=2), onto=before)
    assert after.topics["audit"] is before.topics["audit"]
    assert after.topics["orders"].partitions[0] is before.topics["orders"].partitions[0]
    assert after.topic_names is before.topic_names
    assert before.topics["orders"].partitions[1].leader == 1, "an image never changes"


@pytest.mark.proof
def test_one_change_among_ten_thousand_partitions_is_cheap() -> None:
    rng = Random(1)
    image = fold(*topic("big", rng.randbytes(16), 5_000))
    image = fold(*(record for n in range(5_000) for record in topic(f"t{n}", rng.randbytes(16), 1)), onto=image)
    change = r.PartitionChangeRecord(partition_id=2_500, topic_id=image.topics["big"].id, leader=2)
    started = time.process_time()
    for _ in range(10):
        assert changes(image, fold(change, onto=image)).partitions == {"big": (2_500,)}
    assert time.process_time() - started < 0.2  # a twentieth of that on a quiet machine


ids = st.binary(min_size=16, max_size=16)
names = st.text("abc.-", min_size=1, max_size=4)
brokers = st.lists(st.integers(0, 5), max_size=3)


@st.composite
def partitions(draw: st.DrawFn, topic_id: bytes, number: int) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=draw(brokers),
        isr=draw(brokers),
        removing_replicas=draw(brokers),
        adding_replicas=draw(brokers),
        leader=draw(st.integers(-1, 5)),
        leader_recovery_state=draw(st.integers(0, 1)),
        leader_epoch=draw(st.integers(0, 9)),
        partition_epoch=draw(st.integers(0, 9)),
        directories=draw(st.lists(ids, max_size=2)),
        eligible_leader_replicas=draw(brokers) or None,
        last_known_elr=draw(brokers) or None,
    )


@st.composite
def images(draw: st.DrawFn) -> Image:
    """Any image at all, also ones that no controller would make."""
    records: list[r.Record] = []
    for name, topic_id in zip(
        draw(st.lists(names, unique=True, max_size=3)), draw(st.lists(ids, unique=True, min_size=3))
    ):
        records.append(r.TopicRecord(name=name, topic_id=topic_id))
        records += [draw(partitions(topic_id, number)) for number in range(draw(st.integers(0, 2)))]
    for broker_id in draw(st.sets(st.integers(0, 5), max_size=2)):
        records.append(
            r.RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=draw(ids),
                broker_epoch=draw(st.integers(0, 2**63 - 1)),
                end_points=[r.BrokerEndpoint(name=name, host=draw(names), port=9) for name in draw(st.lists(names))],
                features=[
                    r.BrokerFeature(name=name, max_supported_version=3)
                    for name in draw(st.lists(names, max_size=2, unique=True))
                ],
                rack=draw(st.none() | names),
                fenced=draw(st.booleans()),
                in_controlled_shutdown=draw(st.booleans()),
                log_dirs=draw(st.lists(ids, max_size=2)),
                cordoned_log_dirs=draw(st.none() | st.lists(ids, max_size=2)),
            )
        )
    entity = st.builds(
        lambda user, client: [
            r.EntityData(entity_type="user", entity_name=user),
            r.EntityData(entity_type="client-id", entity_name=client),
        ],
        st.none() | names,
        st.none() | names,
    )
    others = st.one_of(
        st.builds(
            r.ConfigRecord, resource_type=st.integers(0, 9), resource_name=names, name=names, value=st.none() | names
        ),
        st.builds(r.FeatureLevelRecord, name=names, feature_level=st.integers(0, 3)),
        st.builds(r.ClientQuotaRecord, entity=entity, key=names, value=st.floats(0, 9), remove=st.booleans()),
        st.builds(r.ProducerIdsRecord, next_producer_id=st.integers(0, 2**62)),
        st.builds(
            r.AccessControlEntryRecord, id=ids, resource_name=names, principal=names, operation=st.integers(0, 9)
        ),
        st.builds(r.UserScramCredentialRecord, name=names, mechanism=st.integers(1, 2), salt=st.binary(max_size=3)),
    )
    records += draw(st.lists(others, max_size=8))
    return apply(EMPTY, records, draw(st.integers(0, 2**62)))


@settings(max_examples=60, deadline=None)
@given(images())
def test_a_snapshot_rebuilds_any_image(image: Image) -> None:
    records = [r.decode(r.encode(record)) for record in snapshot_records(image)]
    assert apply(EMPTY, records, image.index) == image
