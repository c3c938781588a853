"""A process that is the controller of a large cluster until it is killed; its argument is the file of the store.

It says `ready` once there are three brokers and all the partitions. The brokers are nothing but registrations.
"""

from __future__ import annotations

import asyncio
import sys
from random import Random

from barnabas.cluster.brokers import SUPPORTED_FEATURES
from barnabas.cluster.events import BrokerHeartbeat, CreateTopics, NewTopic, RegisterBroker
from barnabas.cluster.metadata_log import MetadataLog
from barnabas.coordination.embedded import EmbeddedStore
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.clock import SystemClock

BROKERS = (1, 2, 3)
TOPICS = 10
PARTITIONS = 10_000


async def main(path: str) -> None:
    clock = SystemClock()
    store = EmbeddedStore(path, 1, clock)
    await store.open()
    log = MetadataLog(store, clock, Random(1), BrokerConfig({}))
    await log.start()
    for broker_id in BROKERS:
        registration = RegisterBroker(broker_id, bytes([broker_id]) * 16, (), SUPPORTED_FEATURES)
        epoch = (await log.submit(registration)).epoch
        await log.submit(BrokerHeartbeat(broker_id, epoch, log.image.index))
    for number in range(TOPICS):
        topic = NewTopic(f"topic-{number}", PARTITIONS // TOPICS, len(BROKERS), configs={"min.insync.replicas": "2"})
        (created,) = await log.submit(CreateTopics((topic,)))
        assert created.error is None, created.error
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
