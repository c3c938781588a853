"""AddOffsetsToTxn: a transaction is about to commit offsets of this group.

v4: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from barnabas.wire.schema import int16, int32, int64, request, response, string


@request(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@response(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
