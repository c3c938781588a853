"""Access control: who may do what to which resource. A cluster without an authorizer answers SECURITY_DISABLED."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.outcomes import refusal, settled
from barnabas.client.routes import ANY, CONTROLLER, ask_one
from barnabas.core.dataclass import dataclass
from barnabas.core.errors import KafkaError
from barnabas.wire.messages.k29_describe_acls import DescribeAclsRequest
from barnabas.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest


class AclResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, value: object) -> AclResourceType:
        return cls.UNKNOWN


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In a filter: whatever applies to a resource of this name, also by prefix or wildcard."""
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def _missing_(cls, value: object) -> PatternType:
        return cls.UNKNOWN


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, value: object) -> AclOperation:
        return cls.UNKNOWN


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, value: object) -> Permission:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Acl:
    resource_type: AclResourceType
    resource_name: str
    principal: str
    """Such as `User:alice`; `User:*` is everybody."""
    operation: AclOperation
    permission: Permission = Permission.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which of them; as it is made, all."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


class Acls:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe(self, filter: AclFilter | None = None) -> tuple[Acl, ...]:
        request = DescribeAclsRequest(*_wire_filter(filter or AclFilter()))
        return await ask_one(self._client, ANY, None, request, _read_described)

    async def create(self, acls: Iterable[Acl]) -> None:
        wanted = list(acls)

        def read(response: Any) -> dict[Acl, KafkaError | None]:
            return {
                acl: refusal(found.error_code, f"cannot create {acl}", found.error_message)
                for acl, found in zip(wanted, response.results, strict=True)
            }

        request = CreateAclsRequest([_creation(acl) for acl in wanted])
        settled(await ask_one(self._client, CONTROLLER, None, request, read))

    async def delete(self, filters: Iterable[AclFilter]) -> dict[AclFilter, tuple[Acl, ...]]:
        """Delete what any of the filters matches; the answer is what each of them has deleted."""
        wanted = list(filters)

        def read(response: Any) -> dict[AclFilter, tuple[Acl, ...] | KafkaError]:
            return {each: _deleted(found) for each, found in zip(wanted, response.filter_results, strict=True)}

        request = DeleteAclsRequest([DeleteAclsFilter(*_wire_filter(each)) for each in wanted])
        return settled(await ask_one(self._client, CONTROLLER, None, request, read))


def _wire_filter(filter: AclFilter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    return (
        filter.resource_type,
        filter.resource_name,
        filter.pattern_type,
        filter.principal,
        filter.host,
        filter.operation,
        filter.permission,
    )


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def _acl(resource: Any, entry: Any) -> Acl:
    return Acl(
        AclResourceType(resource.resource_type),
        resource.resource_name,
        entry.principal,
        AclOperation(entry.operation),
        Permission(entry.permission_type),
        entry.host,
        PatternType(resource.pattern_type),
    )


def _read_described(response: Any) -> tuple[Acl, ...]:
    if response.error_code:
        raise refused(response.error_code, "cannot describe access control", response.error_message)
    return tuple(_acl(resource, entry) for resource in response.resources for entry in resource.acls)


def _deleted(found: Any) -> tuple[Acl, ...] | KafkaError:
    """The first error is that of the whole filter."""
    what = "cannot delete access control"
    problem = refusal(found.error_code, what, found.error_message)
    for each in found.matching_acls:
        problem = problem or refusal(each.error_code, what, each.error_message)
    return problem or tuple(_acl(each, each) for each in found.matching_acls)
