"""DeleteShareGroupOffsets: let a share group without members forget topics (KIP-932)."""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, request, response, string, struct, uuid


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = string()


@request(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)
