"""The clients without async: `from barnabas.sync import Producer, Consumer, Admin`.

The same classes, options and methods; what is awaited there is waited for here. Safe to use from several threads.
Each is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.sync.admin import Admin
    from barnabas.sync.consumer import Consumer
    from barnabas.sync.outbox import Delivery
    from barnabas.sync.producer import Producer

__all__ = ["Admin", "Consumer", "Delivery", "Producer"]

_HOMES = {
    "Admin": "barnabas.sync.admin",
    "Consumer": "barnabas.sync.consumer",
    "Delivery": "barnabas.sync.outbox",
    "Producer": "barnabas.sync.producer",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'barnabas.sync' has no attribute {name!r}")
    return getattr(import_module(home), name)
