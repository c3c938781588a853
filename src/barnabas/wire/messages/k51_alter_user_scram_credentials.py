"""AlterUserScramCredentials: add, change and remove SCRAM users (KIP-554)."""

from __future__ import annotations

from barnabas.wire.schema import Buffer, array, bytes_, int8, int16, int32, request, response, string, struct


@struct
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@struct
class ScramCredentialUpsertion:
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: Buffer = bytes_()
    salted_password: Buffer = bytes_()


@request(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@struct
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@response(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
