"""Delegation tokens as a broker tells of them; only a client that has signed in gets that far."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

from barnabas.client.admin.tokens import DelegationToken, Principal, Tokens
from barnabas.client.client import Client
from barnabas.core.clock import SystemClock
from barnabas.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from barnabas.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.wire.messages.k41_describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

ANSWERS: dict[type, object] = {
    CreateDelegationTokenRequest: CreateDelegationTokenResponse(
        0, "User", "alice", "User", "root", 1000, 2000, 3000, "id", memoryview(b"secret")
    ),
    RenewDelegationTokenRequest: RenewDelegationTokenResponse(0, 2500),
    ExpireDelegationTokenRequest: ExpireDelegationTokenResponse(0, 1500),
    DescribeDelegationTokenRequest: DescribeDelegationTokenResponse(
        0,
        [
            DescribedDelegationToken(
                "User",
                "alice",
                "User",
                "root",
                1000,
                2000,
                3000,
                "id",
                memoryview(b"secret"),
                [DescribedDelegationTokenRenewer("User", "bob")],
            )
        ],
    ),
}


def test_a_token_is_created_told_renewed_and_ended() -> None:
    asked: list[Any] = []

    async def answer(message: Any, *, highest: int | None = None) -> object:
        asked.append(message)
        return ANSWERS[type(message)]

    client = Client("host", network=cast(Any, None), clock=SystemClock(), random=Random(1))
    client.metadata.ask_any = answer  # type: ignore[method-assign]
    tokens = Tokens(client)
    token = DelegationToken(
        "id", b"secret", Principal("alice"), Principal("root"), 1000, 2000, 3000, (Principal("bob"),)
    )

    async def work() -> None:
        assert await tokens.create(owner=Principal("alice"), renewers=[Principal("bob")]) == token
        assert await tokens.describe([Principal("alice")]) == (token,)
        assert (await tokens.renew(token.hmac), await tokens.expire(token.hmac)) == (2500, 1500)

    asyncio.run(work())
    created, described, renewed, expired = asked
    assert (created.owner_principal_type, created.owner_principal_name) == ("User", "alice")
    assert [(each.principal_type, each.principal_name) for each in created.renewers] == [("User", "bob")]
    assert [each.principal_name for each in described.owners] == ["alice"]
    assert (created.max_lifetime_ms, renewed.renew_period_ms, expired.expiry_time_period_ms) == (-1, -1, -1)
