"""`barnabas up`: a broker on this machine, for a laptop, a test or a notebook."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.options import OutputOption, SettingsOption
from barnabas.cli.output import Output
from barnabas.cli.serving import serve_broker

app = typer.Typer(rich_markup_mode=None, add_completion=False)

DEFAULT_DATA_DIR = "barnabas-data"
_DEFAULT_HOST = "127.0.0.1"
_DEFAULT_PORT = 9092


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


@app.command()
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
    BARNABAS_LOG_RETENTION_MS or from --set log.retention.ms=60000, which counts more.
    """
    chosen = []
    if data_dir is not None:
        chosen.append(f"log.dirs={data_dir.absolute()}")
    if port is not None or host is not None:
        name = host or _DEFAULT_HOST
        place = f"[{name}]" if ":" in name else name
        chosen.append(f"listeners=PLAINTEXT://{place}:{_DEFAULT_PORT if port is None else port}")
    if metrics_port is not None:
        chosen.append(f"barnabas.metrics.port={metrics_port}")
    if log_format is not None:
        chosen.append(f"barnabas.log.format={log_format.value}")
    # A broker that is alone has no others to wait for, as in Kafka's own sample for one.
    defaults = f"log.dir={Path(DEFAULT_DATA_DIR).absolute()}\ngroup.initial.rebalance.delay.ms=0\n"
    serve_broker(("barnabas up", defaults.encode()), [*chosen, *(settings or ())], output)
