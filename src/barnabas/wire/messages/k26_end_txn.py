"""EndTxn: commit or abort.

v5: the epoch rises with every transaction, and the response carries it (KIP-890).
"""

from __future__ import annotations

from barnabas.wire.schema import boolean, int16, int32, int64, request, response, string


@request(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@response(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
