"""RemoveRaftVoter: a controller of Kafka's quorum votes no more (KIP-853)."""

from __future__ import annotations

from barnabas.wire.schema import int16, int32, request, response, string, uuid


@request(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


@response(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
