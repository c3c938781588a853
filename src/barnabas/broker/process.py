"""A broker as a process of its own: the real disk, sockets, clock and threads, signals, and a tuned interpreter."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.app import Broker, StartError
from barnabas.broker.metrics import LoopProbe
from barnabas.coordination.embedded import EmbeddedStore
from barnabas.coordination.store import StoreUnavailable
from barnabas.core import logs
from barnabas.core.clock import SystemClock
from barnabas.net.sockets import TcpNetwork
from barnabas.storage.cleaner_process import ChildRunner
from barnabas.storage.disk import RealDisk

if TYPE_CHECKING:
    from barnabas.broker.metrics_endpoint import MetricsEndpoint
    from barnabas.coordination.store import MetadataStore
    from barnabas.core.broker_config import BrokerConfig
    from barnabas.core.seams import Network

T = TypeVar("T")
_THREADS = 8
_GC_THRESHOLD = 50_000  # the broker makes few cycles; the default of 700 would look for them all the time
_METADATA_FILE = "metadata.sqlite"
_log = logs.get_logger(__name__)


class ThreadExecutor:
    """Blocking work goes to a few threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="worker")

    def submit(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        self._threads.shutdown(wait=True)


class Machine:
    """What a broker gets of the machine it runs on; tests put something that they can cut in its place."""

    def network(self, loop: asyncio.AbstractEventLoop, config: BrokerConfig) -> Network:
        return TcpNetwork(
            loop,
            send_buffer_bytes=config["socket.send.buffer.bytes"],
            receive_buffer_bytes=config["socket.receive.buffer.bytes"],
        )

    def metadata_store(self, config: BrokerConfig, clock: SystemClock) -> MetadataStore:
        connect = config["zookeeper.connect"]
        if not connect:
            return EmbeddedStore(metadata_file(config), config.node_id, clock)
        from barnabas.coordination.zookeeper import ZooKeeperStore

        try:
            return ZooKeeperStore(
                connect,
                config.node_id,
                session_timeout_s=config["zookeeper.session.timeout.ms"] / 1000,
                request_timeout_s=config["zookeeper.connection.timeout.ms"] / 1000,
                auth=config["barnabas.zookeeper.auth"],
            )
        except ValueError as error:
            raise StartError(str(error)) from error


def metadata_file(config: BrokerConfig) -> str:
    """Where the embedded metadata store is."""
    return config["barnabas.metadata.file"] or os.path.join(config.log_dirs[0], _METADATA_FILE)


def make_broker(config: BrokerConfig, machine: Machine, executor: ThreadExecutor) -> tuple[Broker, MetadataStore]:
    """A broker on the running loop, and the store that it closes when it stops."""
    clock = SystemClock()
    os.makedirs(config.log_dirs[0], exist_ok=True)
    store = machine.metadata_store(config, clock)
    broker = Broker(
        config,
        disk=RealDisk(),
        network=machine.network(asyncio.get_running_loop(), config),
        clock=clock,
        random=SystemRandom(),
        executor=executor,
        store=store,
        hostname=socket.gethostname(),
        cleaning=ChildRunner(),
        boot_id=_boot_id(),
    )
    return broker, store


def serve(
    config: BrokerConfig,
    on_ready: Callable[[Sequence[str]], None],
    metrics_port: int | None = None,
    *,
    lifeline: int | None = None,
    log_facts: Mapping[str, object] | None = None,
    machine: Machine | None = None,
) -> None:
    """Run a broker in this process until SIGTERM or SIGINT; StartError if it cannot start.

    `lifeline` is a pipe whose end means the same. `log_facts` stand in every line of the log.
    """
    clock = SystemClock()
    _raise_descriptor_limit()
    logs.configure(config["barnabas.log.level"], config["barnabas.log.format"], clock, facts=log_facts)
    for warning in config.warnings:
        _log.warning("configuration", warning=warning)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(config, on_ready, metrics_port, lifeline, machine or Machine()))


def _raise_descriptor_limit() -> None:
    """A connection and a segment cost a descriptor each; take as many as the system lets this process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError) as error:  # macOS tells of no limit and takes less
        _log.warning("limit of open files not raised", problem=str(error))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None  # asyncio's own loop will do
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _run(
    config: BrokerConfig,
    on_ready: Callable[[Sequence[str]], None],
    metrics_port: int | None,
    lifeline: int | None,
    machine: Machine,
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if lifeline is not None:

        def ended() -> None:
            loop.remove_reader(lifeline)
            stopping.set()

        loop.add_reader(lifeline, ended)
    executor = ThreadExecutor(loop)
    try:
        broker, store = make_broker(config, machine, executor)
        try:
            if not await _is_done_before(stopping, broker.start()):
                await store.close()
                return
        except StoreUnavailable as error:
            raise StartError(str(error)) from error
        try:
            endpoint = await _start_metrics(broker, config["barnabas.metrics.host"], metrics_port)
        except StartError:
            await broker.stop()
            raise
        probe = LoopProbe(broker.metrics.loop_lag, loop)
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD)
        on_ready([f"{endpoint.host}:{endpoint.port}" for endpoint in broker.endpoints])
        await stopping.wait()
        _log.info("stopping")
        probe.close()
        if endpoint is not None:
            await endpoint.close()
        await broker.stop()
    finally:
        executor.close()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""  # not Linux


async def _is_done_before(event: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Work until the event comes; what is not done then is dropped. A start may wait for ZooKeeper without end."""
    task, waiter = asyncio.create_task(work), asyncio.create_task(event.wait())
    await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if task.done():
        task.result()
        return True
    task.cancel()
    await asyncio.wait((task,))
    return False


async def _start_metrics(broker: Broker, host: str, port: int | None) -> MetricsEndpoint | None:
    if port is None:
        return None
    import platform

    from barnabas import __version__
    from barnabas.broker.metrics_endpoint import MetricsEndpoint
    from barnabas.broker.samples import sample_state
    from barnabas.records import engine

    build = {"version": __version__, "python": platform.python_version(), "codec": engine.describe()}
    endpoint = MetricsEndpoint(
        broker.metrics, broker.server.traffic, broker.partition_samples, build, lambda: sample_state(broker)
    )
    try:
        bound = await endpoint.start(host, port)
    except OSError as error:
        raise StartError(
            f"cannot serve metrics on {host}:{port}: {error.strerror or error}; choose another port"
        ) from error
    _log.info("metrics", address=f"http://{host}:{bound}/metrics")
    return endpoint
