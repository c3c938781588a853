"""Every API key that has a table, in one table: name, versions, and since when it is flexible.

The message modules are imported when first asked for, so that a quick start pays for no API that nobody calls. Which of
these a broker serves is the business of its handlers.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any

from barnabas.core.dataclass import dataclass

NEVER = 0x7FFF  # `flexible_since` of an API that has no flexible version


@dataclass(frozen=True, slots=True)
class Api:
    key: int
    name: str
    min_version: int
    max_version: int
    flexible_since: int

    @property
    def stem(self) -> str:
        """The module of the messages, and of the handler."""
        return f"k{self.key:02}_{snake_case(self.name)}"

    @property
    def request(self) -> type[Any]:
        return _message(self, "Request")

    @property
    def response(self) -> type[Any]:
        return _message(self, "Response")


@cache
def _message(api: Api, role: str) -> type[Any]:
    found: type[Any] = getattr(import_module(f"barnabas.wire.messages.{api.stem}"), api.name + role)
    return found


def snake_case(name: str) -> str:
    """Kafka's names as Python writes them: TopicId is topic_id, ISRNodes is isr_nodes."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


API_KEYS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, "Produce", 3, 13, 9),
        Api(1, "Fetch", 4, 18, 12),
        Api(2, "ListOffsets", 1, 11, 6),
        Api(3, "Metadata", 0, 13, 9),
        Api(8, "OffsetCommit", 2, 10, 8),
        Api(9, "OffsetFetch", 1, 10, 6),
        Api(10, "FindCoordinator", 0, 6, 3),
        Api(11, "JoinGroup", 0, 9, 6),
        Api(12, "Heartbeat", 0, 4, 4),
        Api(13, "LeaveGroup", 0, 5, 4),
        Api(14, "SyncGroup", 0, 5, 4),
        Api(15, "DescribeGroups", 0, 6, 5),
        Api(16, "ListGroups", 0, 5, 3),
        Api(17, "SaslHandshake", 0, 1, NEVER),
        Api(18, "ApiVersions", 0, 4, 3),
        Api(19, "CreateTopics", 2, 7, 5),
        Api(20, "DeleteTopics", 1, 6, 4),
        Api(21, "DeleteRecords", 0, 2, 2),
        Api(22, "InitProducerId", 0, 5, 2),
        Api(23, "OffsetForLeaderEpoch", 2, 4, 4),
        Api(24, "AddPartitionsToTxn", 0, 5, 3),
        Api(25, "AddOffsetsToTxn", 0, 4, 3),
        Api(26, "EndTxn", 0, 5, 3),
        Api(27, "WriteTxnMarkers", 1, 2, 1),
        Api(28, "TxnOffsetCommit", 0, 5, 3),
        Api(29, "DescribeAcls", 1, 3, 2),
        Api(30, "CreateAcls", 1, 3, 2),
        Api(31, "DeleteAcls", 1, 3, 2),
        Api(32, "DescribeConfigs", 1, 4, 4),
        Api(33, "AlterConfigs", 0, 2, 2),
        Api(34, "AlterReplicaLogDirs", 1, 2, 2),
        Api(35, "DescribeLogDirs", 1, 5, 2),
        Api(36, "SaslAuthenticate", 0, 2, 2),
        Api(37, "CreatePartitions", 0, 3, 2),
        Api(38, "CreateDelegationToken", 1, 3, 2),
        Api(39, "RenewDelegationToken", 1, 2, 2),
        Api(40, "ExpireDelegationToken", 1, 2, 2),
        Api(41, "DescribeDelegationToken", 1, 3, 2),
        Api(42, "DeleteGroups", 0, 2, 2),
        Api(43, "ElectLeaders", 0, 2, 2),
        Api(44, "IncrementalAlterConfigs", 0, 1, 1),
        Api(45, "AlterPartitionReassignments", 0, 1, 0),
        Api(46, "ListPartitionReassignments", 0, 0, 0),
        Api(47, "OffsetDelete", 0, 0, NEVER),
        Api(48, "DescribeClientQuotas", 0, 1, 1),
        Api(49, "AlterClientQuotas", 0, 1, 1),
        Api(50, "DescribeUserScramCredentials", 0, 0, 0),
        Api(51, "AlterUserScramCredentials", 0, 0, 0),
        Api(55, "DescribeQuorum", 0, 2, 0),
        Api(56, "AlterPartition", 2, 3, 0),
        Api(57, "UpdateFeatures", 0, 2, 0),
        Api(60, "DescribeCluster", 0, 2, 0),
        Api(61, "DescribeProducers", 0, 0, 0),
        Api(62, "BrokerRegistration", 0, 4, 0),
        Api(63, "BrokerHeartbeat", 0, 2, 0),
        Api(64, "UnregisterBroker", 0, 0, 0),
        Api(65, "DescribeTransactions", 0, 0, 0),
        Api(66, "ListTransactions", 0, 2, 0),
        Api(67, "AllocateProducerIds", 0, 0, 0),
        Api(68, "ConsumerGroupHeartbeat", 0, 1, 0),
        Api(69, "ConsumerGroupDescribe", 0, 1, 0),
        Api(74, "ListConfigResources", 0, 1, 0),
        Api(75, "DescribeTopicPartitions", 0, 0, 0),
        Api(77, "ShareGroupDescribe", 1, 1, 0),
        Api(80, "AddRaftVoter", 0, 1, 0),
        Api(81, "RemoveRaftVoter", 0, 0, 0),
        Api(89, "StreamsGroupDescribe", 0, 0, 0),
        Api(90, "DescribeShareGroupOffsets", 0, 1, 0),
        Api(91, "AlterShareGroupOffsets", 0, 0, 0),
        Api(92, "DeleteShareGroupOffsets", 0, 0, 0),
    )
}

_BY_NAME = {api.name: api for api in API_KEYS.values()}


def api(key: int) -> Api:
    """The API of this key; KeyError if there is none."""
    return API_KEYS[key]


def api_named(name: str) -> Api:
    """The API of this name, such as `Produce`; KeyError if there is none."""
    return _BY_NAME[name]
