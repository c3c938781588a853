"""A broker in the test's own process: on an event loop of its own, in a thread.

It shares the interpreter with the test, so it can neither be killed nor paused, and a test that keeps the interpreter
busy keeps the broker waiting. Its log goes to `logging`, where pytest shows it with the test that fails.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from barnabas.broker.app import StartError
from barnabas.broker.process import ThreadExecutor, make_broker
from barnabas.coordination.store import StoreUnavailable
from barnabas.testing.cut import CuttableMachine
from barnabas.testing.forks import ClusterError

if TYPE_CHECKING:
    from barnabas.core.broker_config import BrokerConfig

_START_PATIENCE_S = 30.0
_STOP_PATIENCE_S = 20.0


class ThreadBroker:
    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._machine = CuttableMachine()
        self._started: Future[str] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),), name="barnabas-broker", daemon=True)
        self._thread.start()
        self.address = self._started.result(_START_PATIENCE_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_STOP_PATIENCE_S)
        if self._thread.is_alive():
            raise ClusterError(f"the broker does not stop within {_STOP_PATIENCE_S:.0f} s")

    def set_cut(self, is_cut: bool) -> None:
        asyncio.run_coroutine_threadsafe(self._set_cut(is_cut), self._loop).result(_STOP_PATIENCE_S)

    async def _set_cut(self, is_cut: bool) -> None:
        assert self._machine.cable is not None
        self._machine.cable.set_cut(is_cut)

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        executor = ThreadExecutor(self._loop)
        try:
            broker, store = make_broker(self._config, self._machine, executor)
            try:
                await broker.start()
            except BaseException:
                broker.server.close()
                await store.close()
                raise
            endpoint = broker.endpoints[0]
            self._started.set_result(f"{endpoint.host}:{endpoint.port}")
            await self._stopping.wait()
            await broker.stop()
        except (StartError, StoreUnavailable, OSError) as error:
            if self._started.done():
                raise
            self._started.set_exception(ClusterError(str(error)))
        finally:
            executor.close()
