"""DescribeAcls, CreateAcls, DeleteAcls: without an authorizer each is answered with SECURITY_DISABLED."""

from __future__ import annotations

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k29_describe_acls import DescribeAclsRequest
from barnabas.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.broker.wire_client import Client

ANY, TOPIC, LITERAL, READ, ALLOW = 1, 2, 3, 3, 3
VERSIONS = range(1, 4)
REJECTED = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


@pytest.mark.parametrize("version", VERSIONS)
def test_describe_acls_is_security_disabled(client: Client, version: int) -> None:
    request = DescribeAclsRequest(ANY, None, LITERAL, None, None, ANY, ANY)
    response = client.call(request, version)
    assert (response.error_code, response.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert response.error_message == "No Authorizer is configured on the broker"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_create_acls_is_security_disabled_for_each_acl(client: Client, version: int, count: int) -> None:
    creations = [AclCreation(TOPIC, f"t{n}", LITERAL, "User:a", "*", READ, ALLOW) for n in range(count)]
    response = client.call(CreateAclsRequest(creations), version)
    assert [(result.error_code, result.error_message) for result in response.results] == [REJECTED] * count


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_delete_acls_is_security_disabled_for_each_filter(client: Client, version: int, count: int) -> None:
    filters = [DeleteAclsFilter(TOPIC, f"t{n}", LITERAL, None, None, ANY, ANY) for n in range(count)]
    response = client.call(DeleteAclsRequest(filters), version)
    answers = [(result.error_code, result.error_message) for result in response.filter_results]
    assert answers == [REJECTED] * count
    assert all(result.matching_acls == [] for result in response.filter_results)
