"""The broker that coordinates a group or a transactional id: found when first needed, and again when it has moved."""

from __future__ import annotations

from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import CannotReach, NoAnswer, refused
from barnabas.client.metadata import BrokerInfo
from barnabas.client.routes import KeyType
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_NOT_NOW = _MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Coordinator:
    """Owned by the loop of its client."""

    def __init__(self, client: Client, key_type: KeyType, key: str) -> None:
        self._client = client
        self._key_type = key_type
        self._key = key
        self._broker: BrokerInfo | None = None

    async def ask(self, message: Any, *, highest: int | None = None, extra_timeout_ms: int = 0) -> Any:
        """Send to the coordinator; that it is another broker by now, or not ready, is a retriable error."""
        broker = await self._find()
        try:
            response = await self._client.ask(broker, message, highest=highest, extra_timeout_ms=extra_timeout_ms)
        except (CannotReach, NoAnswer):
            self._broker = None
            raise
        self.check(getattr(response, "error_code", ErrorCode.NONE))
        return response

    def check(self, code: int) -> None:
        """Raise what says that this broker cannot serve now."""
        if code in _MOVED:
            self._broker = None
        if code in _NOT_NOW:
            raise refused(code, str(self))

    async def features(self) -> ApiVersionsResponse:
        """Which APIs and features the coordinator has."""
        response: ApiVersionsResponse = await self.ask(ApiVersionsRequest("barnabas", "0"))
        return response

    async def _find(self) -> BrokerInfo:
        if self._broker is None:
            request = FindCoordinatorRequest(self._key, self._key_type, [self._key])
            response = await self._client.metadata.ask_any(request)
            found = response.coordinators[0] if response.coordinators else response
            if found.error_code != ErrorCode.NONE:
                raise refused(found.error_code, str(self), found.error_message)
            self._broker = BrokerInfo(found.node_id, found.host, found.port, None)
        return self._broker

    def __str__(self) -> str:
        return f"coordinator of {self._key_type.name.lower()} {self._key!r}"
