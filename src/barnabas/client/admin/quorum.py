"""The quorum of Kafka's controllers (KIP-595). Barnabas keeps its metadata in a store of its own and serves none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.client.client import Client
from barnabas.client.connections import Address
from barnabas.client.errors import refused
from barnabas.client.routes import ANY, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.wire.messages.k55_describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from barnabas.wire.messages.k80_add_raft_voter import AddRaftVoterRequest, Listener
from barnabas.wire.messages.k81_remove_raft_voter import RemoveRaftVoterRequest

_TIMEOUT_MS = 30_000
_METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


class Quorum:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(self) -> QuorumDescription:
        request = DescribeQuorumRequest([RequestTopicData(_METADATA_TOPIC, [RequestPartitionData(0)])])
        return await ask_one(self._client, ANY, None, request, _read)

    async def add_voter(self, voter_id: int, directory_id: bytes, endpoints: Mapping[str, Address]) -> None:
        """Let a controller vote (KIP-853); `endpoints` are its addresses by the name of the listener."""
        listeners = [Listener(name, *address) for name, address in endpoints.items()]
        cluster_id = self._client.metadata.cluster.cluster_id
        request = AddRaftVoterRequest(cluster_id, _TIMEOUT_MS, voter_id, directory_id, listeners)
        await ask_one(self._client, ANY, None, request, _reader(f"cannot add voter {voter_id}"))

    async def remove_voter(self, voter_id: int, directory_id: bytes) -> None:
        """Let a controller vote no more."""
        request = RemoveRaftVoterRequest(self._client.metadata.cluster.cluster_id, voter_id, directory_id)
        await ask_one(self._client, ANY, None, request, _reader(f"cannot remove voter {voter_id}"))


def _reader(what: str) -> Callable[[Any], None]:
    def read(response: Any) -> None:
        if response.error_code:
            raise refused(response.error_code, what, response.error_message)

    return read


def _read(response: Any) -> QuorumDescription:
    what = "cannot describe the quorum"
    if response.error_code:
        raise refused(response.error_code, what, response.error_message)
    found = response.topics[0].partitions[0]
    if found.error_code:
        raise refused(found.error_code, what, found.error_message)
    return QuorumDescription(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        tuple(_replica(each) for each in found.current_voters),
        tuple(_replica(each) for each in found.observers),
    )


def _replica(state: Any) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp if state.last_fetch_timestamp >= 0 else None,
        state.last_caught_up_timestamp if state.last_caught_up_timestamp >= 0 else None,
    )
