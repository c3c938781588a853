"""The way back from an image to records: what would build it from nothing."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.cluster import records as r
from barnabas.cluster.image import Broker, Image, Topic


def snapshot_records(image: Image) -> Iterator[r.Record]:
    for name, level in image.features.items():
        yield r.FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield _broker(broker)
    for topic in image.topics.values():
        yield from _topic(topic)
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield r.ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
    if image.next_producer_id:
        yield r.ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)
    for entity, quotas in image.quotas.items():
        parts = [r.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, limit in quotas.items():
            yield r.ClientQuotaRecord(entity=parts, key=key, value=limit)
    for entry_id, entry in image.acls.items():
        yield r.AccessControlEntryRecord(id=entry_id, **entry._asdict())
    for user, credential in image.scram.items():
        yield r.UserScramCredentialRecord(name=user.user, mechanism=user.mechanism, **credential._asdict())


def _broker(broker: Broker) -> r.RegisterBrokerRecord:
    cordoned = broker.cordoned_log_dirs
    return r.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[r.BrokerEndpoint(**endpoint._asdict()) for endpoint in broker.endpoints],
        features=[
            r.BrokerFeature(
                name=name, min_supported_version=versions.min_version, max_supported_version=versions.max_version
            )
            for name, versions in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def _topic(topic: Topic) -> Iterator[r.Record]:
    yield r.TopicRecord(name=topic.name, topic_id=topic.id)
    for number, partition in enumerate(topic.partitions):
        yield r.PartitionRecord(
            partition_id=number,
            topic_id=topic.id,
            replicas=list(partition.replicas),
            isr=list(partition.isr),
            removing_replicas=list(partition.removing_replicas),
            adding_replicas=list(partition.adding_replicas),
            leader=partition.leader,
            leader_recovery_state=partition.leader_recovery_state,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            directories=list(partition.directories),
            eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
            last_known_elr=list(partition.last_known_elr) or None,
        )
