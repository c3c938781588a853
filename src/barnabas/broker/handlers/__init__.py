"""The APIs that this broker really serves, and in which versions; only these are advertised.

One module per API, under the stem of its messages, with a function `handle(request, context)`; it says `KEEPS_REQUEST =
True` if that uses its request after it has returned. It is imported when the API is first called.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from barnabas.wire.registry import api

SERVED: dict[int, tuple[int, int]] = {
    0: (0, 13),  # Produce: 0-2 for the sake of older librdkafka, see its module
    1: (4, 18),  # Fetch
    2: (1, 11),  # ListOffsets
    3: (0, 13),  # Metadata
    8: (2, 10),  # OffsetCommit
    9: (1, 10),  # OffsetFetch
    10: (0, 6),  # FindCoordinator
    11: (0, 9),  # JoinGroup
    12: (0, 4),  # Heartbeat
    13: (0, 5),  # LeaveGroup
    14: (0, 5),  # SyncGroup
    15: (0, 6),  # DescribeGroups
    16: (0, 5),  # ListGroups
    18: (0, 4),  # ApiVersions
    19: (2, 7),  # CreateTopics
    20: (1, 6),  # DeleteTopics
    21: (0, 2),  # DeleteRecords
    22: (0, 5),  # InitProducerId
    23: (2, 4),  # OffsetForLeaderEpoch
    24: (0, 5),  # AddPartitionsToTxn
    25: (0, 4),  # AddOffsetsToTxn
    26: (0, 5),  # EndTxn
    27: (1, 2),  # WriteTxnMarkers
    28: (0, 5),  # TxnOffsetCommit
    29: (1, 3),  # DescribeAcls
    30: (1, 3),  # CreateAcls
    31: (1, 3),  # DeleteAcls
    32: (1, 4),  # DescribeConfigs
    33: (0, 2),  # AlterConfigs
    35: (1, 5),  # DescribeLogDirs
    37: (0, 3),  # CreatePartitions
    42: (0, 2),  # DeleteGroups
    43: (0, 2),  # ElectLeaders
    44: (0, 1),  # IncrementalAlterConfigs
    45: (0, 1),  # AlterPartitionReassignments
    46: (0, 0),  # ListPartitionReassignments
    47: (0, 0),  # OffsetDelete
    60: (0, 2),  # DescribeCluster
    61: (0, 0),  # DescribeProducers
    64: (0, 0),  # UnregisterBroker
    65: (0, 0),  # DescribeTransactions
    66: (0, 2),  # ListTransactions
    68: (0, 1),  # ConsumerGroupHeartbeat
    69: (0, 1),  # ConsumerGroupDescribe
    74: (0, 1),  # ListConfigResources
    75: (0, 0),  # DescribeTopicPartitions
}

BETWEEN_BROKERS: dict[int, tuple[int, int]] = {
    56: (3, 3),  # AlterPartition
    62: (3, 4),  # BrokerRegistration
    63: (0, 2),  # BrokerHeartbeat
    67: (0, 0),  # AllocateProducerIds
}
"""What brokers ask their controller; no client does, so it is not advertised, as in Kafka."""


class Handler(NamedTuple):
    handle: Callable[..., Any]
    keeps_request: bool
    """Whether it uses its request after it has returned. No mark on the function: a compiled one takes none."""


def load(key: int) -> Handler:
    """The handler of an API."""
    module = import_module(f"{__name__}.{api(key).stem}")
    return Handler(module.handle, getattr(module, "KEEPS_REQUEST", False))
