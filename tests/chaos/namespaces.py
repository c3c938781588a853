"""A world of our own to break: the run gets namespaces for its network, its mounts and its processes.

What it sets up in them (links, routes, small disks, brokers) is gone with its first process, however that ends, and
nothing outside sees it. Root may have them; others only where the system lets every user have them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

_INSIDE = "CHAOS_IN_NAMESPACES"
_OWN = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_PROGRAMS = ("unshare", "nsenter", "ip", "mount")


def missing() -> str:
    """What keeps a run from having its namespaces, and what to do about it; nothing if nothing does."""
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"{', '.join(absent)} not found: chaos needs Linux with util-linux and iproute2"
    tried = subprocess.run([*command(), "true"], capture_output=True, text=True, timeout=20, check=False)
    if tried.returncode:
        advice = "run as root, or let users have namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
        return f"no namespaces here ({tried.stderr.strip()}): {advice}"
    return ""


def are_entered() -> bool:
    return _INSIDE in os.environ


def enter(arguments: Sequence[str]) -> None:
    """Run this module again as the first process of new namespaces; does not return."""
    whole = [*command(), sys.executable, "-m", "tests.chaos", *arguments]
    os.execvpe(whole[0], whole, {**os.environ, _INSIDE: "1"})


def command() -> list[str]:
    """What stands before the command of a program that is to have its own namespaces."""
    become_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *become_root, *_OWN]
