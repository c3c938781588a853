"""A blocking client that sends any message in any version, and short cuts for the requests that most tests need.

It leaves nothing to chance: no retries, no metadata, no version that the test did not name. The short cuts go by topic
names, so they speak the last version that has them.
"""

from __future__ import annotations

import itertools
import select
import socket
import struct
import time
import uuid
from typing import Any, Self

from barnabas.core.errors import ErrorCode
from barnabas.records.batch import headers
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.records.reader import records_of
from barnabas.records.record import Record
from barnabas.wire.compiler import codec
from barnabas.wire.headers import decode_response_header, encode_request_header
from barnabas.wire.messages import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k19_create_topics,
    k20_delete_topics,
    k22_init_producer_id,
    k44_incremental_alter_configs,
)
from barnabas.wire.registry import Api, api
from barnabas.wire.schema import schema_of
from tests.peers import eventually

PRODUCE_BY_NAME = 12
FETCH_BY_NAME = 12
MAX_BYTES = 50 * 1024 * 1024
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
TOPIC, BROKER = 2, 4


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def api_of(message: Any) -> Api:
    return api(schema_of(type(message)).key)


class Connection:
    """One connection. What is sent on it is answered in the same order."""

    def __init__(self, address: str, timeout: float = 60) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id: str | None = "test"
        self._correlation_ids = itertools.count(1)

    def send(self, message: Any, version: int) -> int:
        """Send a request without waiting; its correlation id."""
        correlation_id = next(self._correlation_ids)
        head = encode_request_header(api_of(message).key, version, correlation_id, self.client_id)
        self.send_frame(b"".join([head, *codec(type(message), version).encode(message)]))
        return correlation_id

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, request: Any, version: int, correlation_id: int) -> Any:
        """The next response, which must be the one to this request."""
        frame = memoryview(self.receive_frame())
        called = api_of(request)
        answered, position = decode_response_header(called.key, version, frame)
        assert answered == correlation_id
        response, end = codec(called.response, version).decode(frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes after the response"
        return response

    def receive_frame(self) -> bytearray:
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, size: int) -> bytearray:
        received = bytearray()
        while len(received) < size:
            chunk = self.socket.recv(size - len(received))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            received += chunk
        return received

    def call(self, message: Any, version: int | None = None) -> Any:
        """Send a request, in the newest version unless told otherwise, and wait for its response."""
        if version is None:
            version = api_of(message).max_version
        return self.receive(message, version, self.send(message, version))

    def has_answer(self, within: float) -> bool:
        return bool(select.select([self.socket], [], [], within)[0])

    def is_closed_by_broker(self) -> bool:
        """Wait until the broker hangs up; False if it answers instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client(Connection):
    """A connection, and the usual requests for one partition, with their partition's part of the response."""

    def create_topic(self, partitions: int = 1, config: dict[str, str] | None = None, name: str | None = None) -> str:
        """A topic under a name that no other test uses; returns when all its partitions answer."""
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        configs = [k19_create_topics.CreatableTopicConfig(key, value) for key, value in (config or {}).items()]
        topic = k19_create_topics.CreatableTopic(name, partitions, 1, [], configs)
        (result,) = self.call(k19_create_topics.CreateTopicsRequest([topic])).topics
        assert result.error_code == ErrorCode.NONE, f"{ErrorCode(result.error_code)!r}: {result.error_message}"
        self.await_leaders(name, partitions)
        return name

    def await_leaders(self, name: str, partitions: int) -> None:
        for partition in range(partitions):
            eventually(lambda at=partition: self.list_offset(name, LATEST, at).error_code, 0)  # type: ignore[misc]

    def delete_topic(self, name: str) -> None:
        doomed = [k20_delete_topics.DeleteTopicState(name)]
        (result,) = self.call(k20_delete_topics.DeleteTopicsRequest(doomed, timeout_ms=10_000)).responses
        assert result.error_code == ErrorCode.NONE
        eventually(lambda: self.describe_topic(name).error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def describe_topic(self, name: str) -> Any:
        asked = [k03_metadata.MetadataRequestTopic(name=name)]
        return self.call(k03_metadata.MetadataRequest(asked, allow_auto_topic_creation=False)).topics[0]

    def topic_id(self, name: str) -> bytes:
        topic_id: bytes = self.describe_topic(name).topic_id
        return topic_id

    def alter_topic(self, name: str, **config: str | None) -> None:
        """Set what has a value, and unset what has none; keys are written with underscores."""
        changes = [
            k44_incremental_alter_configs.AlterableConfig(key.replace("_", "."), value is None, value)
            for key, value in config.items()
        ]
        resource = k44_incremental_alter_configs.AlterConfigsResource(TOPIC, name, changes)
        (result,) = self.call(k44_incremental_alter_configs.IncrementalAlterConfigsRequest([resource])).responses
        assert result.error_code == ErrorCode.NONE, result.error_message

    def produce(
        self,
        topic: str,
        records: bytes | bytearray | None,
        partition: int = 0,
        *,
        acks: int = -1,
        version: int = PRODUCE_BY_NAME,
    ) -> Any:
        response = self.call(produce_request(topic, records, partition, acks=acks), version)
        return response.responses[0].partition_responses[0]

    def fetch(
        self,
        topic: str,
        offset: int = 0,
        partition: int = 0,
        *,
        leader_epoch: int = -1,
        max_bytes: int = MAX_BYTES,
        partition_max_bytes: int = MAX_BYTES,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        isolation_level: int = 0,
        version: int = FETCH_BY_NAME,
    ) -> Any:
        asked = k01_fetch.FetchPartition(partition, leader_epoch, offset, partition_max_bytes=partition_max_bytes)
        request = k01_fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            topics=[k01_fetch.FetchTopic(topic=topic, partitions=[asked])],
        )
        return self.call(request, version).responses[0].partitions[0]

    def read_all(self, topic: str, partition: int = 0, offset: int = 0) -> list[Record]:
        """Every record up to the high watermark, fetched as often as it takes."""
        found: list[Record] = []
        while True:
            data = self.fetch(topic, offset, partition)
            assert data.error_code == ErrorCode.NONE
            records = records_in(data.records)
            if not records:
                assert offset == data.high_watermark
                return found
            found += [record for record in records if record.offset >= offset]
            offset = found[-1].offset + 1

    def list_offset(
        self, topic: str, timestamp: int, partition: int = 0, *, isolation_level: int = 0, version: int = 11
    ) -> Any:
        asked = k02_list_offsets.ListOffsetsPartition(partition, timestamp=timestamp)
        topics = [k02_list_offsets.ListOffsetsTopic(topic, [asked])]
        request = k02_list_offsets.ListOffsetsRequest(-1, isolation_level, topics, 10_000)
        return self.call(request, version).topics[0].partitions[0]

    def producer_id(self) -> int:
        """A new one; Kafka has none to give in its first moments."""
        given = []

        def ask() -> ErrorCode:
            given.append(self.call(k22_init_producer_id.InitProducerIdRequest(None, -1)))
            return ErrorCode(given[-1].error_code)

        eventually(ask, ErrorCode.NONE)
        producer_id: int = given[-1].producer_id
        return producer_id


def produce_request(topic: str, records: bytes | bytearray | None, partition: int = 0, *, acks: int = -1) -> Any:
    data = [k00_produce.PartitionProduceData(partition, records)]
    return k00_produce.ProduceRequest(None, acks, 10_000, [k00_produce.TopicProduceData(topic, partition_data=data)])


def batch(
    *values: bytes,
    timestamp_ms: int | None = None,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    control: bool = False,
) -> bytearray:
    """A record batch of these values, with the present time unless told otherwise."""
    builder = BatchBuilder(
        compression, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, control=control
    )
    for value in values or (b"value",):
        builder.append(b"key", value, (("header", b"h"),), now_ms() if timestamp_ms is None else timestamp_ms)
    return builder.build()


def records_in(data: Any) -> list[Record]:
    """The records of all whole batches in the records field of a response."""
    view = memoryview(data or b"")
    return [record for at, header in headers(view) for record in records_of(view[at : at + header.size])]


def values_in(data: Any) -> list[bytes | None]:
    return [record.value for record in records_in(data)]
