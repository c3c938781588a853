"""`barnabas broker`: a broker as its configuration file says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.options import OutputOption, SettingsOption, examples
from barnabas.cli.output import Output, fail

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=examples(
        "barnabas broker --config server.properties",
        "barnabas broker --config server.properties --set log.retention.hours=24",
    )
)
def broker(
    config: Annotated[Path, typer.Option(help="A file of Kafka's settings, key=value line by line.")],
    settings: SettingsOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start a broker from a configuration file and serve until Ctrl-C or SIGTERM.

    Variables such as BARNABAS_LOG_RETENTION_MS count more than the file, and --set counts more than both.
    """
    from barnabas.cli.serving import serve_broker

    try:
        content = config.read_bytes()
    except OSError as error:
        fail(f"cannot read configuration file {config}: {error.strerror}")
    serve_broker((str(config), content), settings or (), output)
