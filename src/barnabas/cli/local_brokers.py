"""Brokers on this machine: one alone, or several that share a directory."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas.broker.app import StartError
from barnabas.cli.output import Output, fail, show
from barnabas.cli.serving import serve_broker
from barnabas.cli.up import DEFAULT_DATA_DIR, DEFAULT_HOST, DEFAULT_PORT
from barnabas.core import logs
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.clock import SystemClock
from barnabas.core.config import ConfigError
from barnabas.core.listeners import EVERY_INTERFACE
from barnabas.core.local_cluster import OWN_KEYS, broker_dir, shared_settings


def up_alone(
    data_dir: Path | None,
    host: str | None,
    port: int | None,
    metrics_port: int | None,
    settings: Sequence[str],
    output: Output,
) -> None:
    chosen, advertised = [], ""
    if data_dir is not None:
        chosen.append(f"log.dirs={data_dir.absolute()}")
    if port is not None or host is not None:
        address = host or DEFAULT_HOST, DEFAULT_PORT if port is None else port
        chosen.append(_listener(*address))
        if not any(setting.partition("=")[0].strip() == "listeners" for setting in settings):
            advertised = _advertised(*address)
    if metrics_port is not None:
        chosen.append(f"barnabas.metrics.port={metrics_port}")
    directory = (data_dir or Path(DEFAULT_DATA_DIR)).absolute()
    if broker_dir(directory, 1).exists():
        fail(f"{directory} holds a cluster of several brokers; start it with --brokers, or use another directory")
    # A broker that is alone has no others to wait for, as in Kafka's own sample for one.
    defaults = f"log.dir={Path(DEFAULT_DATA_DIR).absolute()}\ngroup.initial.rebalance.delay.ms=0\n{advertised}"
    serve_broker(("barnabas up", defaults.encode()), [*chosen, *settings], output)


def up_several(
    place: Path,
    host: str | None,
    port: int | None,
    count: int,
    restart: bool,
    metrics_port: int | None,
    settings: Sequence[str],
    output: Output,
) -> None:
    if own := [key for setting in settings if (key := setting.partition("=")[0].strip()) in OWN_KEYS]:
        fail(f"--set {own[0]} is for one broker; with --brokers use --data-dir, --host and --port")
    if (place / "meta.properties").exists():
        fail(f"{place} holds the data of a broker that is alone; use another directory")

    address, first = host or DEFAULT_HOST, DEFAULT_PORT if port is None else port
    defaults = "".join(f"{key}={value}\n" for key, value in shared_settings(place, count).items())

    def broker(number: int) -> Callable[[Sequence[str]], BrokerConfig]:
        own = [f"node.id={number}", f"log.dirs={broker_dir(place, number)}"]
        if metrics_port is not None:
            own.append(f"barnabas.metrics.port={metrics_port and metrics_port + number - 1}")

        def configure(addresses: Sequence[str]) -> BrokerConfig:
            wanted = int(addresses[0].rpartition(":")[2]) if addresses else _port(address, first, number)
            chosen = [*own, _listener(address, wanted), *settings]
            file = ("barnabas up", (defaults + _advertised(address, wanted)).encode())
            return BrokerConfig.load(file, os.environ, chosen)

        return configure

    members = [broker(number) for number in range(1, count + 1)]
    try:
        config = members[0](())
        for member in members[1:]:
            member(())
    except ConfigError as error:
        fail(str(error))
    logs.configure(config["barnabas.log.level"], config["barnabas.log.format"], SystemClock())
    place.mkdir(parents=True, exist_ok=True)
    if broker_dir(place, count + 1).exists():
        logs.get_logger(__name__).warning("not all brokers of this directory are started", data_dir=str(place))

    def on_ready(addresses: Sequence[str], pids: Sequence[int]) -> None:
        ready = {
            "event": "ready",
            "addresses": list(addresses),
            "log_dirs": [str(broker_dir(place, number)) for number in range(1, count + 1)],
            "pid": os.getpid(),
            "broker_pids": list(pids),
        }
        show(ready, output, f"ready {','.join(addresses)} data in {place}", indent=None)

    from barnabas.cli.supervisor import Supervisor

    try:
        Supervisor(members, restart=restart).run(on_ready)
    except StartError as error:
        fail(str(error))


def _listener(host: str, port: int) -> str:
    return f"listeners={_endpoint(host, port)}"


def _advertised(host: str, port: int) -> str:
    """The line that advertises what the command line says, so that tools find it; none where it is known only later."""
    return "" if host in EVERY_INTERFACE or not port else f"advertised.listeners={_endpoint(host, port)}\n"


def _endpoint(host: str, port: int) -> str:
    return f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"


def _port(host: str, first: int, number: int) -> int:
    """The port of a broker: the one after that of the broker before, or a free one where that is taken."""
    if number == 1 or first == 0:
        return first
    wanted = first + number - 1
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, wanted, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, OverflowError):
        return 0
    return wanted
