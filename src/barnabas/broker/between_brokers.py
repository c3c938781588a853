"""Requests that only brokers send: whom to believe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def refusal(context: Context) -> ErrorCode:
    """NONE if the request came in where brokers speak to each other."""
    if context.listener == context.broker.inter_broker_listener:
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
