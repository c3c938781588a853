"""CreateAcls 1-3: there is no authorizer to enforce access rules: each is rejected with SECURITY_DISABLED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k30_create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def handle(request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    rejected = AclCreationResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return CreateAclsResponse(results=[rejected] * len(request.creations))
