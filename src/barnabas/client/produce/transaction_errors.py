"""What can go wrong with a transaction, and whether the producer can go on after it."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError


class NoTransaction(RuntimeError):
    """A transactional producer used outside a transaction, a transaction inside another, or on a producer without."""


class TransactionAborted(KafkaError):
    """The transaction was given up, because something in it failed; the producer can begin the next one."""

    def __init__(self, transactional_id: str, cause: KafkaError) -> None:
        super().__init__(cause.code, f"the transaction of {transactional_id!r} cannot be committed: {cause}")


class ProducerUnusable(KafkaError):
    """This producer can do nothing more; close it. What it had not committed is aborted."""

    def __init__(self, transactional_id: str, cause: KafkaError) -> None:
        super().__init__(
            cause.code, f"the producer of {transactional_id!r} cannot go on: {cause}; close it and make a new one"
        )

    @property
    def retriable(self) -> bool:
        return False


class ProducerFenced(ProducerUnusable):
    """Another producer with this transactional id has taken over, or the transaction took too long."""

    def __init__(self, transactional_id: str) -> None:
        cause = KafkaError(
            ErrorCode.PRODUCER_FENCED,
            "another producer with this transactional_id has taken over, "
            "or a transaction was open for longer than transaction_timeout_ms",
        )
        super().__init__(transactional_id, cause)


class OutcomeUnknown(ProducerUnusable):
    """The coordinator was told to commit and did not answer: the transaction may be committed or aborted.

    A new producer with the same transactional id settles it. Go on from what is committed then: with `send_offsets`,
    the group's committed offsets tell which of the two it was.
    """

    def __init__(self, transactional_id: str, cause: KafkaError) -> None:
        answer = f"whether its transaction is committed is not known ({cause})"
        super().__init__(transactional_id, KafkaError(ErrorCode.REQUEST_TIMED_OUT, answer))
