"""Who reads which partition, in the classic protocol: the group's leader decides, by the assignor that all share.

Each is the same on the wire and in its outcome as Java's of the same name, so that members of both share groups.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.client.group.assignors.assignor import Assignor
from barnabas.client.group.assignors.cooperative_sticky import CooperativeStickyAssignor
from barnabas.client.group.assignors.range import RangeAssignor
from barnabas.client.group.assignors.roundrobin import RoundRobinAssignor
from barnabas.client.group.assignors.sticky import StickyAssignor

ASSIGNORS: dict[str, Callable[[], Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
