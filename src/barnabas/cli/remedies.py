"""What to do about an error of the cluster, in terms of this command."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError

_REMEDIES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`barnabas topic list` shows the topics",
    ErrorCode.GROUP_ID_NOT_FOUND: "`barnabas group list` shows the groups",
    ErrorCode.NON_EMPTY_GROUP: "stop its consumers first",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`barnabas txn list` shows the transactional ids",
}


def told(error: KafkaError) -> str:
    """The error with what can be done about it."""
    remedy = _REMEDIES.get(error.code)
    return f"{error}; {remedy}" if remedy else str(error)
