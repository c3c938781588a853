"""WriteTxnMarkers 1-2: end transactions in partitions that this broker leads.

Sent by coordinators, and by tools that end a transaction which its coordinator has forgotten. Answered for each
partition once its marker is committed.

- 2: the version of the transaction protocol, by which a late marker is told from a current one (KIP-1228).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.transactions import outcome_of_marker
from barnabas.coordinator.transaction_shard import MarkerToWrite
from barnabas.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


async def handle(request: WriteTxnMarkersRequest, context: Context) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(await asyncio.gather(*(_write(marker, context) for marker in request.markers)))


async def _write(asked: WritableTxnMarker, context: Context) -> WritableTxnMarkerResult:
    marker = MarkerToWrite(
        "",
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        asked.transaction_version,
        (),
    )
    result = WritableTxnMarkerResult(asked.producer_id)
    for topic in asked.topics:
        results = WritableTxnMarkerTopicResult(topic.name)
        result.topics.append(results)
        codes = await asyncio.gather(
            *(outcome_of_marker(context.broker, topic.name, index, marker) for index in topic.partition_indexes)
        )
        results.partitions += map(WritableTxnMarkerPartitionResult, topic.partition_indexes, codes)
    return result
