"""What can go wrong for a client, said with the host, the cause and the remedy.

What the cluster or the network does is a `KafkaError`, which tells whether the same call may succeed later
(`error.retriable`); a client used where it cannot work is a `RuntimeError`.
"""

from __future__ import annotations

import socket

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.net.channel import ChannelClosed, ClosedUnheard, NotKafka


class CannotReach(KafkaError):
    """A broker that did not take the connection, or dropped it; a port that speaks another protocol stays wrong."""

    def __init__(self, where: str, cause: Exception) -> None:
        code = ErrorCode.BROKER_NOT_AVAILABLE if isinstance(cause, NotKafka) else ErrorCode.NETWORK_EXCEPTION
        super().__init__(code, f"cannot reach {where}: {_explain(cause)}")
        self.may_be_carried_out = isinstance(cause, ChannelClosed) and not isinstance(cause, (ClosedUnheard, NotKafka))
        """Whether there was a connection that the request may have gone through."""


class NoAnswer(KafkaError):
    """A broker that took a request and did not answer it in time; whether it was carried out is not known."""

    def __init__(self, where: str, request: str, timeout_ms: int) -> None:
        message = f"{where} did not answer {request} within {timeout_ms} ms; is it overloaded or stopped?"
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class NotOpen(RuntimeError):
    """A client that was not entered yet, or was closed."""


class WrongLoop(RuntimeError):
    """A client that another event loop owns."""


class WrongProcess(RuntimeError):
    """A client that was made before a fork."""


class RecordTooLarge(KafkaError):
    """A record that no batch of the allowed size can hold."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class BufferFull(KafkaError):
    """A producer that holds as many unsent records as its memory allows."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class DeliveryTimeout(KafkaError):
    """Records that were not acknowledged in the time for it; whether the cluster has them is not known."""

    def __init__(self, what: str, option: str, milliseconds: int, problem: KafkaError | None) -> None:
        cause = f": {problem}" if problem else ""
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"{what} within {option}={milliseconds}{cause}")


class DeliveryUnknown(KafkaError):
    """Records that a leader refuses as out of order after an attempt that it did not answer.

    They may be in its log, so far back that it does not know them again: sent under other numbers, they would be there
    twice.
    """

    def __init__(self, what: str, refusal: KafkaError) -> None:
        reason = "an earlier attempt was not answered, so whether the cluster has them is not known"
        super().__init__(refusal.code, f"{what} not acknowledged: {refusal}; {reason}")


class Abandoned(KafkaError):
    """Records that were not acknowledged when their producer was left; whether the cluster has them is not known."""

    def __init__(self) -> None:
        message = "the producer was left before the record was acknowledged; it may or may not be delivered"
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class NotDelivered(KafkaError):
    """Posted records that failed without anybody having awaited them; raised by the flush that follows."""

    def __init__(self, first: KafkaError, count: int) -> None:
        super().__init__(first.code, f"{records(count, '')} not delivered: {first}")


class CommitFailed(KafkaError):
    """Offsets that a group did not take: it goes on without this member, or does not come out of a rebalance.

    What to do stands in the message.
    """


def records(count: int, where: str) -> str:
    """The beginning of a sentence about so many records."""
    return f"1 record{where} was" if count == 1 else f"{count} records{where} were"


def refused(code: int, what: str, message: str | None = None) -> KafkaError:
    """The broker's refusal of `what`, in its own words where it gave any."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: error code {code}, which this client does not know")
    return KafkaError(known, f"{what}: {message or known.name.lower().replace('_', ' ')}")


def _explain(cause: Exception) -> str:
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused; is it running?"
    if isinstance(cause, TimeoutError):
        return "no answer in time; is a firewall in the way, or another protocol on that port?"
    if isinstance(cause, socket.gaierror):
        return "the host name is not known; is it spelt right?"
    if isinstance(cause, NotKafka):
        return f"{cause}; is the port right?"
    if isinstance(cause, ClosedUnheard):
        return f"{cause}; does that port expect TLS, or is the broker stopping?"
    if isinstance(cause, ChannelClosed):
        return f"{cause}; is it still running?"
    return f"{cause.strerror or cause}" if isinstance(cause, OSError) else str(cause)
