"""`barnabas up`: a broker, or several, on this machine, for a laptop, a test or a notebook."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.options import OutputOption, SettingsOption, examples
from barnabas.cli.output import Output

app = typer.Typer(rich_markup_mode=None, add_completion=False)

DEFAULT_DATA_DIR = "barnabas-data"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
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
        typer.Option(min=0, max=65535, help="0 takes a free one.", show_default=str(DEFAULT_PORT)),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on and to advertise.", show_default=DEFAULT_HOST)
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
    from barnabas.cli.local_brokers import up_alone, up_several

    chosen = []
    if zookeeper is not None:
        chosen.append(f"zookeeper.connect={zookeeper}")
    if log_format is not None:
        chosen.append(f"barnabas.log.format={log_format.value}")
    if brokers == 1:
        up_alone(data_dir, host, port, metrics_port, [*chosen, *(settings or ())], output)
    else:
        place = (data_dir or Path(DEFAULT_DATA_DIR)).absolute()
        up_several(place, host, port, brokers, restart, metrics_port, [*chosen, *(settings or ())], output)
