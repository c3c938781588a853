"""Requests of clients that only the controller can carry out, whichever broker they reach.

Such a handler is written as if its broker were the controller. Where that is another one, the request goes there as it
is, and its response comes back once the change is in this broker's own metadata too: the client that has created a
topic here may use it here.

Without a controller, or with a metadata store that is out of reach, the request waits for as long as the client says;
then every item of it is told why.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.controller_client import FORWARDED, PATIENCE_S
from barnabas.cluster.events import Failure
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context

Request = TypeVar("Request")
Response = TypeVar("Response")
Handler = Callable[[Request, "Context"], Coroutine[Any, Any, Response]]


def by_controller(
    refuse: Callable[[Request, Failure], Response],
) -> Callable[[Handler[Request, Response]], Handler[Request, Response]]:
    """Carry out a request on the controller, wherever it came in; `refuse` says no to all of it."""

    def decorate(handle: Handler[Request, Response]) -> Handler[Request, Response]:
        @functools.wraps(handle)
        async def anywhere(request: Request, context: Context) -> Response:
            broker = context.broker
            is_forwarded = context.client_id == FORWARDED

            def ask() -> Awaitable[Response]:
                if broker.metadata.is_controller:
                    return handle(request, context)
                if is_forwarded:
                    raise broker.metadata.not_controller()
                return _forward(request, context)

            try:
                return await broker.controller.persist(ask, _patience_s(request), once=is_forwarded)
            except KafkaError as error:
                if error.code is ErrorCode.NOT_CONTROLLER:
                    raise  # to the broker that passed it on, and asks another one
                if not context.route.has_error_code:  # else it is counted like any other response
                    broker.metrics.error(context.route.key, error.code)
                return refuse(request, Failure(error.code, error.message))

        return anywhere

    return decorate


def _patience_s(request: Any) -> float:
    """Who does not want to wait (0) takes a time-out for "it has begun", so it must be carried out all the same."""
    timeout_ms: int = getattr(request, "timeout_ms", 0)
    return timeout_ms / 1000 if timeout_ms > 0 else PATIENCE_S


async def _forward(request: Any, context: Context) -> Any:
    response = await context.broker.controller.forward(request, context.version)
    await context.broker.catch_up()
    return response
