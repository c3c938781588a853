"""The page that tells which APIs and versions there are, written from the tables.

    python -m barnabas.wire.coverage barnabas.broker.handlers:SERVED > docs/protocol.md

What a broker serves is not this layer's to know, so the map from key to lowest and highest version is handed in.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pkgutil import resolve_name

from barnabas.wire.registry import API_KEYS, NEVER, Api
from barnabas.wire.schema import Versions

_HEAD = """# Protocol coverage

<!-- Written by `python -m barnabas.wire.coverage barnabas.broker.handlers:SERVED > docs/protocol.md`. -->

*Versions* are those that the wire layer reads and writes, all stable ones of Apache Kafka 4.3. *Flexible* is the first
of them with compact lengths and tagged fields. *Served* is what a broker advertises and answers; what it does not serve
it does not advertise. Produce is advertised from 0, because older librdkafka switches compression off otherwise, and
answered from 3.

| Key | API | Versions | Flexible | Served | Purpose |
| ---: | --- | --- | --- | --- | --- |
"""


def coverage(served: Mapping[int, tuple[int, int]]) -> str:
    """The whole page, as Markdown."""
    return _HEAD + "".join(_row(api, served.get(api.key)) for api in sorted(API_KEYS.values(), key=lambda api: api.key))


def _row(api: Api, served: tuple[int, int] | None) -> str:
    versions = Versions(api.min_version, api.max_version)
    flexible = "never" if api.flexible_since == NEVER else f"{max(api.flexible_since, api.min_version)}"
    answered = "no" if served is None else str(Versions(*served))
    return f"| {api.key} | {api.name} | {versions} | {flexible} | {answered} | {_purpose(api)} |\n"


def _purpose(api: Api) -> str:
    """The first line of the module's docstring, which begins with the name of the API."""
    docstring = import_module(f"barnabas.wire.messages.{api.stem}").__doc__ or ""
    return docstring.partition("\n")[0].removeprefix(f"{api.name}: ").removesuffix(".")


if __name__ == "__main__":
    sys.stdout.write(coverage(resolve_name(sys.argv[1])))
