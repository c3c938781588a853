"""A consumer's place in its group, as the consumer sees it on its own loop.

The membership itself runs on its host's thread, and goes on while the consumer's loop is blocked. What it wants the
consumer to do comes as changes, one at a time, which the consumer takes, carries out and reports as done. Commits go
out from the consumer's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from barnabas.client.client import Client
from barnabas.client.group.commits import Commits, Standing
from barnabas.client.group.handover import Handover
from barnabas.client.group.hosts import Host, LoopHost, ThreadHost
from barnabas.client.group.membership import Membership
from barnabas.client.group.options import GroupOptions
from barnabas.client.group.values import Change, GroupMetadata, OffsetAndMetadata, Subscription
from barnabas.client.metadata import TopicPartition


class GroupMember:
    """Owned by the loop that starts it. Without a subscription it only commits: its consumer chose its partitions."""

    def __init__(
        self,
        client: Client,
        options: GroupOptions,
        subscription: Subscription | None = None,
        host: Callable[[], Host] | None = None,
    ) -> None:
        self.pending = asyncio.Event()
        """Set while there may be a change to take, or a problem to raise."""
        self._client = client
        self._options = options
        self._subscription = subscription
        self._make_host = host or (ThreadHost if client.group_thread else LoopHost)
        self._host: Host | None = None
        self._handover = Handover(GroupMetadata(options.group_id), client.clock.monotonic(), self._wake_caller)
        self._membership: Membership | None = None
        self._ended: asyncio.Future[None] | None = None
        commits_client = client.twin()
        commits_client.retry_timeout_ms = options.default_api_timeout_ms
        self._commits = Commits(commits_client, options.group_id, self._standing, self._doubt)

    async def start(self) -> None:
        """Join the group, in the background; what comes of it is in `pending`."""
        if self._subscription is not None:
            self.subscribe(self._subscription)

    async def close(self, leave: bool = True) -> None:
        """End the membership. With `leave` the group learns of it at once, otherwise when the session has ended."""
        membership, self._membership = self._membership, None
        if membership is not None and self._host is not None and self._ended is not None:
            if not self._ended.done():
                self._host.to_member(lambda: membership.end(leave))
            await asyncio.shield(self._ended)
            self._host.close()
        await self._commits.close()

    def subscribe(self, subscription: Subscription) -> None:
        """Read something else from now on."""
        self._subscription = subscription
        if self._membership is None:
            self._host = self._make_host()
            self._membership = Membership(self._host.client(self._client), self._options, subscription, self._handover)
            self._handover.outside = "the member has not joined its group yet"
            self.polled()
            self._ended = self._host.start(self._membership.run())
        else:
            membership = self._membership
            self._to_member(lambda: membership.subscribe(subscription))

    def polled(self) -> None:
        """The caller is alive."""
        self._handover.polled_at = self._client.clock.monotonic()
        if self._handover.silent:
            self._wake_member()

    def take_change(self) -> Change | None:
        """The next change to carry out; `done` must follow before there is another."""
        self.pending.clear()
        return self._handover.take()

    def done(self, change: Change) -> None:
        self._handover.give_back(change)
        self._wake_member()

    def raise_problem(self) -> None:
        """Raise what has ended the membership, if anything has."""
        if self._handover.problem is not None:
            raise self._handover.problem

    def metadata(self) -> GroupMetadata:
        return self._handover.identity

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await self._commits.commit(offsets)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not committed anything."""
        return await self._commits.committed(partitions)

    def _standing(self) -> Standing:
        with self._handover.lock:
            owned = None if self._membership is None else self._handover.owned
            return Standing(self._handover.identity, self._handover.outside, owned)

    def _doubt(self) -> None:
        if self._membership is not None:
            self._to_member(self._membership.suspect)

    def _wake_member(self) -> None:
        if self._membership is not None:
            self._to_member(self._membership.wake)

    def _to_member(self, callback: Callable[[], object]) -> None:
        assert self._host is not None
        assert self._ended is not None
        if not self._ended.done():
            self._host.to_member(callback)

    def _wake_caller(self) -> None:
        assert self._host is not None
        self._host.to_caller(self.pending.set)
