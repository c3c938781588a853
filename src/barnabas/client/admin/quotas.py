"""Quotas of clients (KIP-546): limits on what a user, a client id, or an address may do to a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import Any, Final, Literal

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.outcomes import refusal, settled
from barnabas.client.routes import ANY, CONTROLLER, ask, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k48_describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)


class Special(Enum):
    DEFAULT = "default"
    ANYONE = "anyone"

    def __repr__(self) -> str:
        return self.name


DEFAULT: Final = Special.DEFAULT
"""Instead of a name: those that have no quota of their own."""
ANYONE: Final = Special.ANYONE
"""Instead of a name, in a filter: whoever has a quota."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota concerns; None is a kind of name that does not matter."""

    user: str | Literal[Special.DEFAULT] | None = None
    client_id: str | Literal[Special.DEFAULT] | None = None
    ip: str | Literal[Special.DEFAULT] | None = None


_FIELDS = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""What the protocol calls each kind of name, and what it is here."""


class _Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class Quotas:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(
        self,
        *,
        user: str | Special | None = None,
        client_id: str | Special | None = None,
        ip: str | Special | None = None,
        strict: bool = False,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas whose entity has these names; `strict` leaves out those that have others besides."""
        wanted = {"user": user, "client-id": client_id, "ip": ip}
        components = [_component(kind, name) for kind, name in wanted.items() if name is not None]
        return await ask_one(self._client, ANY, None, DescribeClientQuotasRequest(components, strict), _read_described)

    async def alter(
        self, quotas: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set quotas, such as `producer_byte_rate`, or remove them with None; others of an entity stay."""

        def request(entities: Iterable[QuotaEntity]) -> AlterClientQuotasRequest:
            entries = [RequestEntryData(_parts(entity), _changes(quotas[entity])) for entity in entities]
            return AlterClientQuotasRequest(entries, validate_only)

        settled(await ask(self._client, CONTROLLER, quotas, request, _read_altered))


def _component(kind: str, name: str | Special) -> ComponentData:
    if name is DEFAULT:
        return ComponentData(kind, _Match.DEFAULT, None)
    if name is ANYONE:
        return ComponentData(kind, _Match.SPECIFIED, None)
    return ComponentData(kind, _Match.EXACT, str(name))


def _parts(entity: QuotaEntity) -> list[EntityData]:
    named = {kind: getattr(entity, field) for kind, field in _FIELDS.items()}
    return [EntityData(kind, None if name is DEFAULT else name) for kind, name in named.items() if name is not None]


def _changes(values: Mapping[str, float | None]) -> list[OpData]:
    return [OpData(key, 0.0 if value is None else value, value is None) for key, value in values.items()]


def _entity(parts: Iterable[Any]) -> QuotaEntity:
    return QuotaEntity(
        **{
            _FIELDS[part.entity_type]: DEFAULT if part.entity_name is None else part.entity_name
            for part in parts
            if part.entity_type in _FIELDS
        }
    )


def _read_described(response: Any) -> dict[QuotaEntity, dict[str, float]]:
    if response.error_code:
        raise refused(response.error_code, "cannot describe quotas", response.error_message)
    return {_entity(found.entity): {each.key: each.value for each in found.values} for found in response.entries or ()}


def _read_altered(response: Any) -> dict[QuotaEntity, KafkaError | None]:
    return {
        entity: refusal(found.error_code, f"cannot alter the quota of {entity}", found.error_message)
        for found in response.entries
        for entity in (_entity(found.entity),)
    }
