"""Delegation tokens (KIP-48): short-lived secrets by which others act for a user. Only who has signed in may ask."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.routes import ANY, CONTROLLER, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.wire.messages.k38_create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest
from barnabas.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)

_BROKER_DEFAULT = -1
_AT_ONCE = -1


class Principal(NamedTuple):
    name: str
    type: str = "User"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    token_id: str
    hmac: bytes
    """The secret itself, and how a token is named to renew or expire it."""
    owner: Principal
    requester: Principal
    issued_ms: int
    expires_ms: int
    max_ms: int
    """Beyond it no renewal goes."""
    renewers: tuple[Principal, ...]


class Tokens:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(
        self, *, owner: Principal | None = None, renewers: Iterable[Principal] = (), max_lifetime_ms: int | None = None
    ) -> DelegationToken:
        """A token for whoever has signed in, or, with the right to it, for another user."""
        others = tuple(renewers)
        request = CreateDelegationTokenRequest(
            owner and owner.type,
            owner and owner.name,
            [CreatableRenewers(each.type, each.name) for each in others],
            _BROKER_DEFAULT if max_lifetime_ms is None else max_lifetime_ms,
        )

        def read(response: Any) -> DelegationToken:
            if response.error_code:
                raise refused(response.error_code, "cannot create a delegation token")
            return DelegationToken(
                response.token_id,
                bytes(response.hmac),
                *_owners(response),
                response.issue_timestamp_ms,
                response.expiry_timestamp_ms,
                response.max_timestamp_ms,
                others,
            )

        return await ask_one(self._client, CONTROLLER, None, request, read)

    async def renew(self, hmac: bytes, period_ms: int | None = None) -> int:
        """Let a token live for so long from now, or for the broker's default; when it will expire."""
        request = RenewDelegationTokenRequest(hmac, _BROKER_DEFAULT if period_ms is None else period_ms)
        return await ask_one(self._client, CONTROLLER, None, request, _read_expiry)

    async def expire(self, hmac: bytes, period_ms: int = _AT_ONCE) -> int:
        """Let a token end after so long, or at once."""
        return await ask_one(
            self._client, CONTROLLER, None, ExpireDelegationTokenRequest(hmac, period_ms), _read_expiry
        )

    async def describe(self, owners: Iterable[Principal] | None = None) -> tuple[DelegationToken, ...]:
        """The tokens of these owners, or all that one may see."""
        wanted = None if owners is None else [DescribeDelegationTokenOwner(each.type, each.name) for each in owners]
        return await ask_one(self._client, ANY, None, DescribeDelegationTokenRequest(wanted), _read_described)


def _owners(token: Any) -> tuple[Principal, Principal]:
    return (
        Principal(token.principal_name, token.principal_type),
        Principal(token.token_requester_principal_name, token.token_requester_principal_type),
    )


def _read_expiry(response: Any) -> int:
    if response.error_code:
        raise refused(response.error_code, "cannot change a delegation token")
    expires_ms: int = response.expiry_timestamp_ms
    return expires_ms


def _read_described(response: Any) -> tuple[DelegationToken, ...]:
    if response.error_code:
        raise refused(response.error_code, "cannot describe delegation tokens")
    return tuple(
        DelegationToken(
            token.token_id,
            bytes(token.hmac),
            *_owners(token),
            token.issue_timestamp,
            token.expiry_timestamp,
            token.max_timestamp,
            tuple(Principal(each.principal_name, each.principal_type) for each in token.renewers),
        )
        for token in response.tokens
    )
