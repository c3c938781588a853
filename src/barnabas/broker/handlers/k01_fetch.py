"""Fetch 4-18: record batches as they lie on disk, from an offset on, up to the watermark.

Waits until `min_bytes` can be read or `max_wait_ms` is over. `max_bytes` bounds the response and
`partition_max_bytes` each partition, but the first batch of the first partition that has one is always whole, or a
consumer with a small limit could never get past a large batch (KIP-74).

- 7: incremental sessions (KIP-227). 9: leader epochs (KIP-320). 10: zstd may be inside.
- 11: the consumer's rack, by which the leader may name a nearer replica, and which lets a follower answer (KIP-392).
- 12: tagged fields; the response tells where the reader's log diverged. 13: topics by id (KIP-516). 15: replica state
  (KIP-903).

An offset that a follower does not have yet is OFFSET_NOT_AVAILABLE there, and the consumer asks the leader again; one
that it has, but does not yet know to be committed, is waited for. Only what the log no longer has, or what is beyond
the leader's end, is OFFSET_OUT_OF_RANGE.

A consumer's fetch is `fetching`, another broker's is `replica_fetching`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.fetching import Fetch
from barnabas.broker.replica_fetching import ReplicaFetch, replica_of
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k01_fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context, Later

_FIRST_VERSION_BY_TOPIC_ID = 13


def handle(request: FetchRequest, context: Context) -> FetchResponse | Later[FetchResponse]:
    broker = context.broker
    by_topic_id = context.version >= _FIRST_VERSION_BY_TOPIC_ID
    replica = replica_of(request, context)
    try:
        session = broker.fetch_sessions.begin(request, by_topic_id, broker.clock.now_ms(), replica)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    if session.copied is None:
        return Fetch(request, context, session).start()
    return ReplicaFetch(request, context, session, session.copied).start()
