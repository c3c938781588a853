"""`barnabas up`: a broker, or several, on this machine, for a laptop, a test or a notebook."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.options import OutputOption, SettingsOption, examples
from barnabas.cli.output import Output, fail, show
from barnabas.cli.serving import serve_broker
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.config import ConfigError
from barnabas.core.local_cluster import OWN_KEYS, broker_dir, shared_settings

app = typer.Typer(rich_markup_mode=None, add_completion=False)

DEFAULT_DATA_DIR = "barnabas-data"
_DEFAULT_HOST = "127.0.0.1"
_DEFAULT_PORT = 9092
_MAX_BROKERS = 100


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


@app.command(
    epilog=examples(
        "barnabas up",
        "barnabas up --brokers 3 --data-dir /var/lib/barnabas",
        "barnabas up --port 0 --set log.retention.ms=60000 -o json",
    )
)
def up(
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the records are kept.", show_default=f"./{DEFAULT_DATA_DIR}")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0 takes a free one.", show_default=str(_DEFAULT_PORT)),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on and to advertise.", show_default=_DEFAULT_HOST)
    ] = None,
    brokers: Annotated[
        int, typer.Option(min=1, max=_MAX_BROKERS, help="How many brokers; each is a process with a port of its own.")
    ] = 1,
    restart: Annotated[bool, typer.Option("--restart", help="With --brokers: start a broker that dies again.")] = False,
    zookeeper: Annotated[
        str | None, typer.Option(metavar="HOSTS", help="Keep the cluster's metadata in ZooKeeper, not in a file.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve Prometheus metrics on this port.")
    ] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="How the log on standard error is written.", show_default="text")
    ] = None,
    settings: SettingsOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start a broker and serve until Ctrl-C or SIGTERM.

    Prints one line that begins with `ready` once clients can connect. Settings are Kafka's, from variables such as
    BARNABAS_LOG_RETENTION_MS or from --set log.retention.ms=60000, which counts more. With --brokers 3 the first one
    is on --port and the others on the ports after it, or on free ones, and new topics have three replicas, of which two
    have to have a record before it is acknowledged. A broker that dies is reported, the rest go on.
    """
    chosen = []
    if zookeeper is not None:
        chosen.append(f"zookeeper.connect={zookeeper}")
    if log_format is not None:
        chosen.append(f"barnabas.log.format={log_format.value}")
    if brokers > 1:
        place = (data_dir or Path(DEFAULT_DATA_DIR)).absolute()
        _up_several(place, host or _DEFAULT_HOST, _DEFAULT_PORT if port is None else port, brokers, restart,
                    metrics_port, [*chosen, *(settings or ())], output)  # fmt: skip
        return
    if data_dir is not None:
        chosen.append(f"log.dirs={data_dir.absolute()}")
    if port is not None or host is not None:
        chosen.append(_listener(host or _DEFAULT_HOST, _DEFAULT_PORT if port is None else port))
    if metrics_port is not None:
        chosen.append(f"barnabas.metrics.port={metrics_port}")
    directory = (data_dir or Path(DEFAULT_DATA_DIR)).absolute()
    if broker_dir(directory, 1).exists():
        fail(f"{directory} holds a cluster of several brokers; start it with --brokers, or use another directory")
    # A broker that is alone has no others to wait for, as in Kafka's own sample for one.
    defaults = f"log.dir={Path(DEFAULT_DATA_DIR).absolute()}\ngroup.initial.rebalance.delay.ms=0\n"
    serve_broker(("barnabas up", defaults.encode()), [*chosen, *(settings or ())], output)


def _up_several(
    place: Path,
    host: str,
    port: int,
    count: int,
    restart: bool,
    metrics_port: int | None,
    settings: list[str],
    output: Output,
) -> None:
    from barnabas.broker.app import StartError
    from barnabas.cli.supervisor import Supervisor
    from barnabas.core import logs
    from barnabas.core.clock import SystemClock

    if own := [key for setting in settings if (key := setting.partition("=")[0].strip()) in OWN_KEYS]:
        fail(f"--set {own[0]} is for one broker; with --brokers use --data-dir, --host and --port")
    if (place / "meta.properties").exists():
        fail(f"{place} holds the data of a broker that is alone; use another directory")

    defaults = "".join(f"{key}={value}\n" for key, value in shared_settings(place, count).items()).encode()

    def broker(number: int) -> Callable[[Sequence[str]], BrokerConfig]:
        own = [f"node.id={number}", f"log.dirs={broker_dir(place, number)}"]
        if metrics_port is not None:
            own.append(f"barnabas.metrics.port={metrics_port and metrics_port + number - 1}")

        def configure(addresses: Sequence[str]) -> BrokerConfig:
            wanted = int(addresses[0].rpartition(":")[2]) if addresses else _port(host, port, number)
            chosen = [*own, _listener(host, wanted), *settings]
            return BrokerConfig.load(("barnabas up", defaults), os.environ, chosen)

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

    try:
        Supervisor(members, restart=restart).run(on_ready)
    except StartError as error:
        fail(str(error))


def _listener(host: str, port: int) -> str:
    return f"listeners=PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"


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
