"""Clusters by name: where each is and how to speak to it, in a file of the user's own.

    {"current": "prod",
     "contexts": {"prod": {"bootstrap_servers": "host:9092", "options": {"request_timeout_ms": 5000}}}}

The cluster of a command is the first of these that is given: --bootstrap-server, the context of --context,
BARNABAS_BOOTSTRAP_SERVER, the context of BARNABAS_CONTEXT, the context in use, a broker on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

VARIABLE = "BARNABAS_CONTEXT"
BOOTSTRAP_VARIABLE = "BARNABAS_BOOTSTRAP_SERVER"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


class ContextError(Exception):
    """A context that is not there, or a file of them that cannot be read."""


class Context(NamedTuple):
    bootstrap_servers: str
    options: Mapping[str, int | str]
    """Of the client, by name."""


class Target(NamedTuple):
    """The cluster that a command speaks to."""

    bootstrap_servers: str
    options: Mapping[str, int | str]
    context: str | None
    """The name of the context that says so."""


class Contexts:
    """The file's content."""

    def __init__(self, current: str | None, known: Mapping[str, Context]) -> None:
        self.current = current
        self.known = dict(known)

    def get(self, name: str) -> Context:
        found = self.known.get(name)
        if found is None:
            there = f"there are {', '.join(sorted(self.known))}" if self.known else "there is none yet"
            raise ContextError(
                f"there is no context {name!r} in {path()}: {there}; `barnabas context add {name} HOST:PORT` makes it"
            )
        return found


def path() -> Path:
    """Where the desktop's rules put it (XDG); a relative directory is to be ignored."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".config") / "barnabas" / "contexts.json"


def load() -> Contexts:
    import json  # here and below: help and completion have no use for it

    file = path()
    try:
        content = json.loads(file.read_bytes())
        known = {name: Context(**fields) for name, fields in content["contexts"].items()}
        return Contexts(content["current"], known)
    except FileNotFoundError:
        return Contexts(None, {})
    except OSError as error:
        raise ContextError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContextError(f"{file} is damaged ({error}); mend it, or remove it and add the contexts anew") from None


def save(contexts: Contexts) -> None:
    """Replace the file as a whole, so that a crash leaves the old one or the new one; nobody else may read it."""
    import json

    known = {name: context._asdict() for name, context in sorted(contexts.known.items())}
    file = path()
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.touch(0o600)
        new.write_text(json.dumps({"current": contexts.current, "contexts": known}, indent=2) + "\n")
        new.replace(file)
    except OSError as error:
        raise ContextError(f"cannot write {file}: {error.strerror}") from None


def choose(bootstrap: str | None) -> Target:
    """The cluster to speak to."""
    if bootstrap is not None:
        return Target(bootstrap, {}, None)
    contexts = load()
    name = os.environ.get(VARIABLE) or contexts.current
    if name is None:
        return Target(DEFAULT_BOOTSTRAP, {}, None)
    found = contexts.get(name)
    return Target(*found, name)
