"""AlterClientQuotas: set and remove quotas (KIP-546)."""

from __future__ import annotations

from barnabas.wire.schema import array, boolean, float64, int16, int32, request, response, string, struct


@struct
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class OpData:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct
class RequestEntryData:
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@request(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[RequestEntryData] = array(RequestEntryData)
    validate_only: bool = boolean()


@struct
class ResponseEntryData:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


@response(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[ResponseEntryData] = array(ResponseEntryData)
