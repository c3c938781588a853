"""A process that holds the controller's claim in ZooKeeper until it is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PROGRAM = """
import asyncio, sys
from barnabas.coordination.zookeeper import ZooKeeperStore

async def main(connect, session_timeout_s):
    store = ZooKeeperStore(connect, 1, session_timeout_s=float(session_timeout_s))
    await store.open()
    print(await store.campaign(0), flush=True)
    await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def claim_holder(connect: str, session_timeout_s: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _PROGRAM, connect, str(session_timeout_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline().strip() == "1"  # the epoch that it has won
            yield holder
        finally:
            holder.kill()
