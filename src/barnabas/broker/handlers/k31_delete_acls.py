"""DeleteAcls 1-3: there is no authorizer, so there are no access rules: each filter gets SECURITY_DISABLED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k31_delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def handle(request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    rejected = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return DeleteAclsResponse(filter_results=[rejected] * len(request.filters))
