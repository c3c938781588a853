"""The controller on brokers: who is registered, who may serve, and the features that all of them share.

A registration starts fenced and under a new epoch, whatever was before; the leaderships that an earlier process of
the same broker still had are moved first, so that nothing it does counts any more. A restart is clean if the broker
knows the epoch it had before: it has closed its files in order then, or nothing can have happened to them. After any
other its replicas count as incomplete, until they have caught up. A broker that shuts down hands over its leaderships,
and may go once it has none.

A feature stands at the highest level that every registered broker supports, and never goes back; a broker that does
not reach that level is refused. With the feature for eligible leader replicas (ELR, KIP-966) `min.insync.replicas`
becomes a setting of the whole cluster: the controller writes the value that it has as the default of all brokers.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.cluster import records as r
from barnabas.cluster.election import MIN_ISR, broker_comes, broker_goes, leads_any
from barnabas.cluster.events import (
    AllocateProducerIds,
    BrokerEpoch,
    BrokerHeartbeat,
    BrokerState,
    FenceBroker,
    ProducerIdBlock,
    RegisterBroker,
    UnregisterBroker,
)
from barnabas.cluster.image import BROKER_RESOURCE, ELR_FEATURE, Broker, Image, SupportedFeature
from barnabas.cluster.outcome import Context, Outcome
from barnabas.core.errors import ErrorCode, KafkaError

SUPPORTED_FEATURES = {
    "metadata.version": SupportedFeature(r.METADATA_VERSION, r.METADATA_VERSION),
    "group.version": SupportedFeature(0, 1),
    "transaction.version": SupportedFeature(0, 2),
    ELR_FEATURE: SupportedFeature(0, 1),
}
"""What this version of Barnabas supports, for its registration."""

PRODUCER_ID_BLOCK = 1000


def register_broker(image: Image, event: RegisterBroker, context: Context) -> Outcome:
    before = image.brokers.get(event.broker_id)
    if before is not None and before.incarnation_id == event.incarnation_id:
        return Outcome([], BrokerEpoch(before.epoch))  # the same process asks again: it did not hear the answer
    registration = r.RegisterBrokerRecord(
        broker_id=event.broker_id,
        incarnation_id=event.incarnation_id,
        broker_epoch=image.index,
        end_points=[r.BrokerEndpoint(**endpoint._asdict()) for endpoint in event.endpoints],
        features=[
            r.BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in event.features.items()
        ],
        rack=event.rack,
        fenced=True,
        log_dirs=list(event.log_dirs),
    )
    levels = list(_raised_features(image, event))
    settled = [_min_isr_of_all(context)] if _makes_min_isr_common(image, levels) else []
    is_clean = before is not None and event.previous_broker_epoch == before.epoch
    moves = broker_goes(image, context.config, event.broker_id, is_clean=is_clean)
    return moves.outcome(BrokerEpoch(image.index), before=[registration, *levels, *settled])


def _makes_min_isr_common(image: Image, levels: list[r.FeatureLevelRecord]) -> bool:
    is_raised = any(level.name == ELR_FEATURE for level in levels)
    return is_raised and MIN_ISR not in image.config(BROKER_RESOURCE, "")


def _min_isr_of_all(context: Context) -> r.ConfigRecord:
    return r.ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=str(context.config[MIN_ISR])
    )


def _raised_features(image: Image, event: RegisterBroker) -> Iterator[r.FeatureLevelRecord]:
    for name, level in image.features.items():
        lowest, highest = event.features.get(name, SupportedFeature(0, 0))
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {event.broker_id} supports {name} {lowest} to {highest}, but the cluster is at {level}; "
                f"run a version of Barnabas that supports it",
            )
    others = [broker for broker in image.brokers.values() if broker.id != event.broker_id]
    for name, (_, highest) in event.features.items():
        level = min([highest, *(other.features.get(name, SupportedFeature(0, 0)).max_version for other in others)])
        if level > image.features.get(name, 0):
            yield r.FeatureLevelRecord(name=name, feature_level=level)


def heartbeat(image: Image, event: BrokerHeartbeat, context: Context) -> Outcome:
    broker = registered(image, event.broker_id, event.broker_epoch)
    is_caught_up = event.applied_index > broker.epoch
    if event.want_shut_down:
        return _shut_down(image, broker, is_caught_up, context)
    if broker.fenced and not broker.in_controlled_shutdown and not event.want_fence and is_caught_up:
        change = r.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=-1)
        changes = broker_comes(image, context.config, broker.id)
        return changes.outcome(BrokerState(True, False, False), before=[change])
    if event.want_fence and not broker.fenced:
        return _fence(image, broker, context, BrokerState(is_caught_up, True, False))
    return Outcome([], BrokerState(is_caught_up, broker.fenced, False))


def _shut_down(image: Image, broker: Broker, is_caught_up: bool, context: Context) -> Outcome:
    """First the leaderships go; at the next heartbeat, when that is known, the broker may."""
    if broker.fenced:
        return Outcome([], BrokerState(is_caught_up, True, True))
    if not leads_any(image, broker.id):
        return _fence(image, broker, context, BrokerState(is_caught_up, True, True))
    change = r.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1)
    moves = broker_goes(image, context.config, broker.id, is_clean=True)
    return moves.outcome(BrokerState(is_caught_up, False, False), before=[change])


def fence_broker(image: Image, event: FenceBroker, context: Context) -> Outcome:
    broker = registered(image, event.broker_id, event.broker_epoch)
    return Outcome([], None) if broker.fenced else _fence(image, broker, context, None)


def unregister_broker(image: Image, event: UnregisterBroker, context: Context) -> Outcome:
    broker = image.brokers.get(event.broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {event.broker_id} is not registered")
    gone = r.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    moves = broker_goes(image, context.config, broker.id, is_clean=False)  # its replicas are not waited for
    return moves.outcome(None, after=[gone])


def allocate_producer_ids(image: Image, event: AllocateProducerIds, context: Context) -> Outcome:
    registered(image, event.broker_id, event.broker_epoch)
    first = image.next_producer_id
    record = r.ProducerIdsRecord(
        broker_id=event.broker_id, broker_epoch=event.broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK
    )
    return Outcome([record], ProducerIdBlock(first, PRODUCER_ID_BLOCK))


def _fence(image: Image, broker: Broker, context: Context, reply: BrokerState | None) -> Outcome:
    change = r.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=1)
    return broker_goes(image, context.config, broker.id, is_clean=True).outcome(reply, before=[change])


def registered(image: Image, broker_id: int, broker_epoch: int) -> Broker:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered; register it first")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}: it was registered again",
        )
    return broker
