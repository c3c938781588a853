"""DeleteTopics: by name, or by id.

v5: error messages; deletion may be throttled (KIP-599). v6: topic ids (KIP-516), for which the list was rebuilt.
"""

from __future__ import annotations

from barnabas.wire.schema import array, int16, int32, request, response, string, struct, uuid


@struct
class DeleteTopicState:
    name: str | None = string(nullable="0+", default=None)
    topic_id: bytes = uuid()


@request(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32()


@struct
class DeletableTopicResult:
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="0+", default=None)


@response(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
