"""How much a producer may hold unsent: whole batches are counted, as Java's client does.

Who wants room while there is none waits in line; each is woken once, when its turn has come and there is room.
"""

from __future__ import annotations

import asyncio

from barnabas.client.errors import BufferFull


class BufferMemory:
    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.waiting = 0
        """How many wait for room: batches should leave without lingering."""
        self._line = asyncio.Lock()
        self._freed = asyncio.Event()

    def has_room(self, size: int) -> bool:
        """A batch larger than all memory gets in when it is the only one."""
        return self.used_bytes + size <= self.limit_bytes or not self.used_bytes

    def reserve(self, size: int) -> None:
        if not self.has_room(size):
            raise BufferFull(
                f"{self.used_bytes} bytes wait to be sent, and buffer_memory={self.limit_bytes}; "
                "`await producer.room()` before the next record, or use `send`, which waits"
            )
        self.used_bytes += size

    def take(self, size: int) -> None:
        """Reserve also where there is no room."""
        self.used_bytes += size

    def release(self, size: int) -> None:
        self.used_bytes -= size
        self._freed.set()

    async def room(self, size: int, timeout_ms: int) -> None:
        """Wait until so many bytes could be reserved."""
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._line:
                while not self.has_room(size):
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            message = f"no room in buffer_memory={self.limit_bytes} within max_block_ms={timeout_ms}"
            raise BufferFull(f"{message}; is the cluster slow, or away?") from None
        finally:
            self.waiting -= 1
