"""What a fuzzer leaves out: requests that are right, are obeyed, and would only make what follows a lesser test.

They are known by decoding what was made, for damage may turn any request into one of them. Every partition costs memory
and files, and is meant to. Without the topics that requests are about there is little to do. A broker that is told to
leave its cluster does so, and comes back with its next heartbeats; meanwhile it leads nothing, and many requests get no
further than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.wire.compiler import codec
from barnabas.wire.headers import decode_request_header
from barnabas.wire.messages.k03_metadata import MetadataRequest
from barnabas.wire.messages.k19_create_topics import CreateTopicsRequest
from barnabas.wire.messages.k20_delete_topics import DeleteTopicsRequest
from barnabas.wire.messages.k37_create_partitions import CreatePartitionsRequest
from barnabas.wire.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.messages.k64_unregister_broker import UnregisterBrokerRequest
from barnabas.wire.primitives import DecodeError
from barnabas.wire.registry import api
from tests.hostile.values import NAMES, TOPICS
from tests.hostile.wire import MAX_FRAME_BYTES

MOST_NAMES = 60
MOST_PARTITIONS = 10


class Bearable:
    """Whether a request keeps within what a test can afford; it remembers the topics that were let through."""

    def __init__(self) -> None:
        self._names = set(NAMES)
        self._judges: dict[int, Callable[[Any], bool]] = {
            3: self._metadata,
            19: self._create_topics,
            20: _delete_topics,
            37: _create_partitions,
            63: _heartbeat,
            64: _unregister,
        }

    def __call__(self, request: bytes) -> bool:
        if len(request) > MAX_FRAME_BYTES:
            return False
        judge = self._judges.get(int.from_bytes(request[:2], "big"))
        if judge is None:
            return True
        try:
            header = decode_request_header(memoryview(request))
            decode = codec(api(header.api_key).request, header.api_version).decode
            return judge(decode(memoryview(request), header.body)[0])
        except (DecodeError, ValueError):
            return True

    def _metadata(self, request: MetadataRequest) -> bool:
        return self._keeps_within({topic.name for topic in request.topics or () if topic.name is not None})

    def _create_topics(self, request: CreateTopicsRequest) -> bool:
        if any(max(topic.num_partitions, len(topic.assignments)) > MOST_PARTITIONS for topic in request.topics):
            return False
        return self._keeps_within({topic.name for topic in request.topics})

    def _keeps_within(self, names: set[str]) -> bool:
        if len(self._names | names) > MOST_NAMES:
            return names <= self._names
        self._names |= names
        return True


def _delete_topics(request: DeleteTopicsRequest) -> bool:
    return TOPICS.keys().isdisjoint((*request.topic_names, *(topic.name for topic in request.topics)))


def _create_partitions(request: CreatePartitionsRequest) -> bool:
    return all(topic.count <= MOST_PARTITIONS for topic in request.topics)


def _heartbeat(request: BrokerHeartbeatRequest) -> bool:
    return not (request.want_fence or request.want_shut_down)


def _unregister(request: UnregisterBrokerRequest) -> bool:
    return request.broker_id != 1
