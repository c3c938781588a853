"""Users that sign in with SCRAM (KIP-554): which there are, their passwords, and their removal."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from hashlib import pbkdf2_hmac
from secrets import token_bytes
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.options import one_of
from barnabas.client.outcomes import alone, refusal, settled
from barnabas.client.routes import ANY, CONTROLLER, ask, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k50_describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from barnabas.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

_SALT_BYTES = 24
_ITERATIONS = 4096


class ScramMechanism(IntEnum):
    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, value: object) -> ScramMechanism:
        return cls.UNKNOWN


_HASHES = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    mechanism: ScramMechanism
    iterations: int


class Users:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(self, user: str) -> tuple[ScramCredential, ...]:
        """The credentials of a user; RESOURCE_NOT_FOUND if there is none."""
        return (await alone(self.describe_many([user])))[user]

    async def describe_many(self, users: Iterable[str] | None = None) -> dict[str, tuple[ScramCredential, ...]]:
        """Those of these users, or of all."""
        if users is None:
            request = DescribeUserScramCredentialsRequest(None)
            return settled(await ask_one(self._client, ANY, None, request, _read_described))

        def request_for(some: Iterable[str]) -> DescribeUserScramCredentialsRequest:
            return DescribeUserScramCredentialsRequest([UserName(user) for user in some])

        return settled(await ask(self._client, ANY, users, request_for, _read_described))

    async def set_password(
        self,
        user: str,
        password: str,
        *,
        mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512,
        iterations: int = _ITERATIONS,
    ) -> None:
        """Create a user, or give it another password; the cluster gets a salted hash of it, never the password."""
        one_of("mechanism", mechanism, _HASHES)
        salt = token_bytes(_SALT_BYTES)
        salted = pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
        change = ScramCredentialUpsertion(user, mechanism, iterations, salt, salted)
        await self._alter(user, AlterUserScramCredentialsRequest([], [change]))

    async def delete(self, user: str, mechanism: ScramMechanism) -> None:
        """Remove a user's credential of this mechanism; what it has of others stays."""
        await self._alter(user, AlterUserScramCredentialsRequest([ScramCredentialDeletion(user, mechanism)], []))

    async def _alter(self, user: str, request: AlterUserScramCredentialsRequest) -> None:
        def read(response: Any) -> None:
            [found] = response.results
            if found.error_code:
                raise refused(found.error_code, f"cannot alter user {user!r}", found.error_message)

        await ask_one(self._client, CONTROLLER, user, request, read)


def _read_described(response: Any) -> dict[str, tuple[ScramCredential, ...] | KafkaError]:
    if response.error_code:
        raise refused(response.error_code, "cannot describe users", response.error_message)
    return {
        found.user: refusal(found.error_code, f"cannot describe user {found.user!r}", found.error_message)
        or tuple(ScramCredential(ScramMechanism(each.mechanism), each.iterations) for each in found.credential_infos)
        for found in response.results
    }
