"""Who a producer is to the leaders that it writes to: what makes its retries idempotent.

A leader counts the sequence numbers of every producer id and epoch, per partition: it takes each number once and in
order. Sequences start at 0 under a new identity. A producer without transactions may raise its epoch by itself, in one
partition alone: there the numbers of a lost batch are a gap, and a new epoch is the way past it (KIP-360).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import refused
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.wire.messages.k22_init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.metadata import TopicPartition
    from barnabas.core.errors import KafkaError

_LAST_EPOCH = 2**15 - 1


class ProducerIdentity(NamedTuple):
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def can_be_raised(self) -> bool:
        return self.producer_epoch < _LAST_EPOCH

    def raised(self) -> ProducerIdentity:
        return self._replace(producer_epoch=self.producer_epoch + 1)


NOBODY = ProducerIdentity()


class Identity:
    """The identity under which batches leave. This one is of a producer without transactions.

    The sender asks, before a batch leaves, for `current` (and calls `obtain` where there is none) and whether the
    partition `may_receive`; it reports what could not be delivered with `lost`. A transaction answers otherwise.
    """

    transactional_id: str | None = None
    highest_produce_version: int | None = None
    """The newest Produce request that may be sent; None: whatever the broker speaks."""

    def __init__(self, client: Client, *, is_idempotent: bool) -> None:
        self.current: ProducerIdentity | None = None if is_idempotent else NOBODY
        self.is_idempotent = is_idempotent
        self._client = client

    async def obtain(self) -> None:
        """Get an id from any broker, once; errors that may pass are the caller's to retry."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        response = await self._client.metadata.ask_any(request)
        if response.error_code:
            raise refused(response.error_code, "cannot get a producer id")
        self.current = ProducerIdentity(response.producer_id, response.producer_epoch)

    def check_may_post(self) -> None:
        """Raise why no record is taken now."""

    def may_receive(self, partition: TopicPartition) -> bool:
        return True

    def lost(self, error: KafkaError) -> None:
        """A batch failed for good."""
