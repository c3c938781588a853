"""Behind a batch that was refused for a reason that passes, nothing of its producer is taken before it comes again.

A producer with several requests under way has sent the next ones when it hears of the refusal. Should the reason have
passed by then, the next one would come with a gap before it, or, where nothing is known of the producer yet, be taken
for its first. Kafka lets that happen. But told of a gap, librdkafka raises its epoch, for all of its partitions, and
sends whatever is not acknowledged again, also what other leaders have already: it is there twice then
(tests/interop/test_librdkafka_epochs.py). So the next ones get the first one's answer, and all come again in order.

A producer that gives up the first batch raises its epoch; one that does not is told of the gap after a while.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.errors import ErrorCode
from barnabas.core.seams import Clock
from barnabas.records.batch import HEADER_SIZE, NO_PRODUCER_ID, BatchHeader, read_header

PASSING = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors that reject a batch before it is appended, and that a producer retries. A broker that has not learned of a new
topic yet answers with the last two, while another has already named it to the producer as the leader."""
KEPT_S = 2.0
"""What was under way has come by then."""
MOST = 1000
_WRAP = 1 << 31  # of sequences: what is less than half of it further on comes later


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    code: ErrorCode
    at_s: float

    def is_before(self, header: BatchHeader) -> bool:
        return header.producer_epoch == self.epoch and 0 < (header.base_sequence - self.sequence) % _WRAP < _WRAP // 2


class RefusedBatches:
    """Owned by the broker's loop, and lost with the process, as are the requests that were under way.

    Of each producer in each partition the first batch that was refused and has not come again.
    """

    __slots__ = ("_clock", "_latest_s", "_refused")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[tuple[str | bytes, int, int], _Refused] = {}
        self._latest_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, topic: str | bytes, index: int, records: memoryview | None, code: ErrorCode) -> None:
        """A batch was refused, be it for another that was before; `topic` is the name or the id in the request."""
        if records is None or len(records) < HEADER_SIZE:
            return
        header = read_header(records)
        key = (topic, index, header.producer_id)
        first = self._refused.get(key)
        if header.producer_id == NO_PRODUCER_ID or (first is not None and first.is_before(header)):
            return
        if first is None and len(self._refused) >= MOST:
            del self._refused[next(iter(self._refused))]
        self._latest_s = self._clock.monotonic()
        self._refused[key] = _Refused(header.producer_epoch, header.base_sequence, code, self._latest_s)

    def answer_to(self, topic: str | bytes, index: int, records: memoryview) -> ErrorCode | None:
        """What a batch behind a refused one is answered with; None for one that may be appended."""
        now_s = self._clock.monotonic()
        if now_s - self._latest_s > KEPT_S:
            self._refused.clear()
            return None
        header = read_header(records)
        key = (topic, index, header.producer_id)
        first = self._refused.get(key)
        if first is None:
            return None
        if first.is_before(header) and now_s - first.at_s <= KEPT_S:
            return first.code
        del self._refused[key]
        return None
