"""Standard input, line by line, without blocking the event loop or a thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

_CHUNK_BYTES = 1 << 18


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """All whole lines that are there, as soon as they are; the last one may lack its newline."""
    rest = b""
    while True:
        await _until_readable(descriptor)
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        return  # a plain file, which epoll refuses and which never keeps a reader waiting
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
