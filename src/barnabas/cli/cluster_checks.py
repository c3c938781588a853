"""Whether the cluster that commands speak to can be reached, and how it is."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.cli import contexts
from barnabas.cli.cluster_state import health, look, min_in_sync
from barnabas.cli.findings import Finding, Status
from barnabas.cli.output import counted
from barnabas.cli.session import run
from barnabas.client.client import Client
from barnabas.core.errors import KafkaError

_PATIENCE_SECONDS = 10.0


def check_cluster(bootstrap: str | None) -> Iterator[Finding]:
    """Nothing of a cluster that nobody has named: a broker on this machine need not run yet."""
    try:
        known = contexts.load()
        target = contexts.choose(bootstrap)
    except contexts.ContextError as error:
        yield Finding("contexts", Status.WARNING, str(error))
        return
    in_use = f", {known.current} is in use" if known.current else ""
    yield Finding("contexts", Status.OK, f"{counted(len(known.known), 'context')} in {contexts.path()}{in_use}")
    if bootstrap is not None or target.context is not None:
        yield _reach(bootstrap, target)


def _reach(bootstrap: str | None, target: contexts.Target) -> Finding:
    name = f"cluster {target.context or target.bootstrap_servers}"

    async def work(client: Client) -> tuple[bool, str]:
        started = client.clock.monotonic()
        state = await look(client)
        elapsed_ms = (client.clock.monotonic() - started) * 1000
        found = health(state, await min_in_sync(client, state))
        size = f"{counted(len(state.alive), 'broker')}, {counted(len(state.topics), 'topic')}"
        healthy = "healthy" if found["healthy"] else "not healthy: see `barnabas cluster health`"
        return found["healthy"], f"{size}, {healthy}; described in {elapsed_ms:.0f} ms"

    try:
        is_healthy, detail = run(bootstrap, work, timeout_s=_PATIENCE_SECONDS)
    except KafkaError as error:
        return Finding(name, Status.WARNING, str(error))
    except TimeoutError:
        return Finding(name, Status.WARNING, f"no answer within {_PATIENCE_SECONDS:g} s")
    return Finding(name, Status.OK if is_healthy else Status.WARNING, detail)
