"""Names for a shell to complete: topics, groups and contexts as they are now.

The user waits at the prompt: a cluster that does not answer in a moment has no names to offer, and neither has anything
else that fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from barnabas.cli import contexts

if TYPE_CHECKING:
    from barnabas import Admin

_PATIENCE_SECONDS = 1.0


def context_names(incomplete: str) -> list[str]:
    try:
        return [name for name in sorted(contexts.load().known) if name.startswith(incomplete)]
    except contexts.ContextError:
        return []


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    async def work(admin: Admin) -> list[str]:
        return [topic.name for topic in await admin.topics.list()]

    return _ask(ctx, incomplete, work)


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    async def work(admin: Admin) -> list[str]:
        return [group.group_id for group in await admin.groups.list()]

    return _ask(ctx, incomplete, work)


def resource_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """What `config` can be about: topics, or brokers, of which there is also the word for all."""

    async def brokers(admin: Admin) -> list[str]:
        return ["all", *(str(broker.node_id) for broker in (await admin.cluster.describe()).brokers)]

    return _ask(ctx, incomplete, brokers) if ctx.params.get("kind") == "broker" else topic_names(ctx, incomplete)


def _ask(ctx: typer.Context, incomplete: str, work: Callable[[Admin], Awaitable[list[str]]]) -> list[str]:
    """What the cluster of the command line so far tells."""
    from barnabas.cli.session import administer

    try:
        names = administer(ctx.params.get("bootstrap"), work, timeout_s=_PATIENCE_SECONDS)
    except Exception:
        return []
    return sorted(name for name in names if name.startswith(incomplete))
