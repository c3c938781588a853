"""DescribeAcls 1-3: there is no authorizer, so there are no access rules to describe: SECURITY_DISABLED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Context


def handle(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
