"""InitProducerId: a producer id and epoch, for idempotence or for a transactional id.

v3: a producer may keep its id and ask for the next epoch (KIP-360). v4: PRODUCER_FENCED. v6 (two-phase commit,
KIP-939) is not stable in Apache Kafka and left out.
"""

from __future__ import annotations

from barnabas.wire.schema import int16, int32, int64, request, response, string


@request(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@response(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
