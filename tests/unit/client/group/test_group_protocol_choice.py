"""Which protocol a member speaks: what it was told to, or what the broker and the group allow."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.group.handover import Handover
from barnabas.client.group.membership import Membership
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.values import GroupMetadata, Subscription
from barnabas.client.metadata import ClusterInfo
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode
from barnabas.wire.messages.k11_join_group import JoinGroupRequest
from barnabas.wire.messages.k18_api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from barnabas.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

ORDERS = Subscription(frozenset(["orders"]))


class Coordinator:
    """A broker that offers the consumer protocol up to some version, or not at all, and refuses members with a code."""

    def __init__(self, newest: int | None, level: int, refusal: ErrorCode) -> None:
        self._offered = ApiVersionsResponse(
            api_keys=[] if newest is None else [ApiVersion(68, 0, newest)],
            finalized_features=[FinalizedFeatureKey("group.version", level, 0)],
        )
        self._refusal = refusal
        self.asked: list[Any] = []

    async def features(self) -> ApiVersionsResponse:
        return self._offered

    async def ask(self, message: Any, *, extra_timeout_ms: int = 0) -> Any:
        self.asked.append(message)
        if isinstance(message, ConsumerGroupHeartbeatRequest) and self._refusal:
            return ConsumerGroupHeartbeatResponse(error_code=self._refusal)
        return await asyncio.Event().wait()


def first_requests(
    newest: int | None = 1,
    level: int = 1,
    refusal: ErrorCode = ErrorCode.NONE,
    subscription: Subscription = ORDERS,
    **options: Any,
) -> tuple[list[Any], Exception | None]:
    """What a member asks the coordinator until that keeps it waiting, and what ended it before."""
    coordinator = Coordinator(newest, level, refusal)

    async def work() -> Exception | None:
        async def nothing(*_: object) -> None:
            pass

        metadata = SimpleNamespace(refresh=nothing, cluster=ClusterInfo())
        client: Any = SimpleNamespace(clock=SystemClock(), random=Random(1), close=nothing, metadata=metadata)
        handover = Handover(GroupMetadata("g"), SystemClock().monotonic(), lambda: None)
        membership = Membership(client, GroupOptions(group_id="g", **options), subscription, handover)
        membership._coordinator = coordinator  # type: ignore[assignment]
        running = asyncio.ensure_future(membership.run())
        for _ in range(20):
            await asyncio.sleep(0)
        membership.end(leave=False)
        await running
        return handover.problem

    return coordinator.asked, asyncio.run(work())


def kinds(*arguments: Any, **options: Any) -> list[type]:
    return [type(message) for message in first_requests(*arguments, **options)[0]]


def test_auto_takes_the_consumer_protocol_where_it_is_offered() -> None:
    assert kinds() == [ConsumerGroupHeartbeatRequest]
    (joining,), _ = first_requests()
    assert len(joining.member_id) == 22
    (joining,), _ = first_requests(newest=0)
    assert joining.member_id == ""  # the broker chooses it


@pytest.mark.parametrize(
    ("newest", "level", "pattern"),
    [(None, 1, None), (1, 0, None), (0, 1, "orders.*")],
    ids=["api", "feature", "pattern"],
)
def test_auto_is_classic_where_it_is_not(newest: int | None, level: int, pattern: str | None) -> None:
    subscription = Subscription(pattern=pattern) if pattern else ORDERS
    assert kinds(newest, level, subscription=subscription) == [JoinGroupRequest]
    _, problem = first_requests(newest, level, subscription=subscription, group_protocol="consumer")
    assert "use group_protocol='auto'" in str(problem)


@pytest.mark.parametrize(
    "refusal",
    [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL],
)
def test_auto_becomes_classic_where_the_group_cannot_go_over(refusal: ErrorCode) -> None:
    assert kinds(refusal=refusal) == [ConsumerGroupHeartbeatRequest, JoinGroupRequest]
    asked, problem = first_requests(refusal=refusal, group_protocol="consumer")
    assert len(asked) == 1
    assert problem is not None


def test_options_of_the_classic_protocol_choose_it() -> None:
    assert kinds(session_timeout_ms=9000) == [JoinGroupRequest]
    assert kinds(group_protocol="classic") == [JoinGroupRequest]
