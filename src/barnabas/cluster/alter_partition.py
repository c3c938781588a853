"""The controller on AlterPartition: a leader asks for other in-sync replicas.

Who asks must be the leader, under the broker epoch, leader epoch and partition epoch that hold now. An epoch from the
future means that this controller is the one that is behind. A replica counts only as the process that the leader has
seen catching up: one that is fenced, shutting down or registered again since then is not eligible (KIP-841, KIP-903).

Any replica may leave, and does when its disk has failed or its log is damaged: it asks for the others alone. What it
has is not relied on any more, and if it has led, another one is elected. The leader epoch rises in any case, so that
nothing it has asked for before brings it back.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.cluster.brokers import registered
from barnabas.cluster.election import PartitionChanges
from barnabas.cluster.events import AlteredPartition, AlterPartition
from barnabas.cluster.image import Image, Partition, Topic
from barnabas.cluster.outcome import Context, Outcome
from barnabas.cluster.partition_change import RECOVERED, RECOVERING, settle
from barnabas.core.errors import ErrorCode, KafkaError

_EPOCH_UNKNOWN = -1


def alter_partition(image: Image, event: AlterPartition, context: Context) -> Outcome:
    registered(image, event.broker_id, event.broker_epoch)
    topic = image.topic_by_id(event.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    if not 0 <= event.partition < len(topic.partitions):
        raise _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic, event, "there is no such partition")
    partition = topic.partitions[event.partition]
    isr = tuple(broker_id for broker_id, _ in event.new_isr)
    _check_epochs(topic, partition, event, isr)
    _check_isr(topic, partition, event, isr)
    _check_members(image, topic, event)
    leaving = event.broker_id if _leaves(partition, event.broker_id, isr) else None
    changes = PartitionChanges(image, context.config, without=leaving)
    wanted = replace(partition, isr=isr, leader_recovery_state=event.leader_recovery_state)
    settled = settle(partition, wanted, changes.rules(topic), changes.may_lead, leaving)
    if leaving is not None:
        fenced = replace(settled.partition, leader_epoch=partition.leader_epoch + 1)
        settled = settled._replace(partition=fenced)
    now = changes.accept(topic, event.partition, settled)
    return changes.outcome(
        AlteredPartition(now.leader, now.leader_epoch, now.isr, now.partition_epoch, now.leader_recovery_state)
    )


def _leaves(partition: Partition, broker_id: int, isr: tuple[int, ...]) -> bool:
    return broker_id in partition.replicas and set(isr) == set(partition.isr) - {broker_id}


def _check_epochs(topic: Topic, partition: Partition, event: AlterPartition, isr: tuple[int, ...]) -> None:
    if event.leader_epoch > partition.leader_epoch or event.partition_epoch > partition.partition_epoch:
        raise _refused(ErrorCode.NOT_CONTROLLER, topic, event, "its epochs are not known here; ask the new controller")
    if event.leader_epoch < partition.leader_epoch:
        problem = f"the leader epoch is {partition.leader_epoch}, not {event.leader_epoch}"
        raise _refused(ErrorCode.FENCED_LEADER_EPOCH, topic, event, problem)
    if event.broker_id != partition.leader and not _leaves(partition, event.broker_id, isr):
        raise _refused(ErrorCode.INVALID_REQUEST, topic, event, f"the leader is {partition.leader}")
    if event.partition_epoch < partition.partition_epoch:
        problem = f"the partition epoch is {partition.partition_epoch}, not {event.partition_epoch}"
        raise _refused(ErrorCode.INVALID_UPDATE_VERSION, topic, event, problem)


def _check_isr(topic: Topic, partition: Partition, event: AlterPartition, isr: tuple[int, ...]) -> None:
    problem = None
    if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
        problem = f"in-sync replicas {list(isr)[:10]} are not distinct ones of {list(partition.replicas)}"
    elif event.broker_id not in isr and not _leaves(partition, event.broker_id, isr):
        problem = f"in-sync replicas {list(isr)} are without the leader"
    elif event.leader_recovery_state not in (RECOVERED, RECOVERING):
        problem = f"leader recovery state {event.leader_recovery_state} is unknown"
    elif event.leader_recovery_state == RECOVERING and len(isr) > 1:
        problem = "a leader that is still recovering is in sync alone"
    elif event.leader_recovery_state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        problem = "a leader that has recovered does not begin to recover"
    if problem:
        raise _refused(ErrorCode.INVALID_REQUEST, topic, event, problem)


def _check_members(image: Image, topic: Topic, event: AlterPartition) -> None:
    for broker_id, epoch in event.new_isr:
        broker = image.brokers.get(broker_id)
        if broker is None:
            problem = "is not registered"
        elif broker.fenced:
            problem = "is fenced"
        elif broker.in_controlled_shutdown:
            problem = "is shutting down"
        elif epoch not in (broker.epoch, _EPOCH_UNKNOWN):
            problem = f"has epoch {broker.epoch}, not {epoch}"
        else:
            continue
        raise _refused(ErrorCode.INELIGIBLE_REPLICA, topic, event, f"broker {broker_id} {problem}")


def _refused(code: ErrorCode, topic: Topic, event: AlterPartition, problem: str) -> KafkaError:
    return KafkaError(code, f"broker {event.broker_id} cannot alter {topic.name}-{event.partition}: {problem}")
