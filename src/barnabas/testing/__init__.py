"""A cluster for tests: `with Cluster() as cluster: ...`, as pytest fixtures too, with faults on request.

Nothing is imported before it is asked for: pytest loads this package in every project that has Barnabas installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster, ClusterError

__all__ = ["Cluster", "ClusterError"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'barnabas.testing' has no attribute {name!r}")
    from barnabas.testing import cluster

    return getattr(cluster, name)
