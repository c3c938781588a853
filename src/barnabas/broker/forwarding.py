"""Requests of clients that only the controller can carry out, whichever broker they reach.

Such a handler is written as if its broker were the controller. Where that is another one, the request goes there as it
is, and its response comes back once the change is in this broker's own metadata too: the client that has created a
topic here may use it here.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.controller_client import FORWARDED, PATIENCE_S

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context

Request = TypeVar("Request")
Response = TypeVar("Response")
Handler = Callable[[Request, "Context"], Coroutine[Any, Any, Response]]


def by_controller(handle: Handler[Request, Response]) -> Handler[Request, Response]:
    """Carry out a request on the controller, wherever it came in."""

    @functools.wraps(handle)
    async def anywhere(request: Request, context: Context) -> Response:
        broker = context.broker
        if context.client_id == FORWARDED:
            if not broker.metadata.is_controller:
                raise broker.metadata.not_controller()
            return await handle(request, context)

        def ask() -> Awaitable[Response]:
            if broker.metadata.is_controller:
                return handle(request, context)
            return _forward(request, context)

        return await broker.controller.persist(ask, PATIENCE_S)

    return anywhere


async def _forward(request: Any, context: Context) -> Any:
    response = await context.broker.controller.forward(request, context.version)
    await context.broker.catch_up()
    return response
