"""`barnabas log`: look into the files of a data directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli.dump import dump_file
from barnabas.cli.options import OutputOption
from barnabas.cli.output import Output, fail, show_stream

app = typer.Typer(help="Look into the files of a data directory.", rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def log() -> None:
    """Look into the files of a data directory."""


@app.command()
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", exists=True, dir_okay=False)],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Every record of a .log file, not only its batches.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what a segment, index, producer snapshot or checkpoint holds; exit code 1 if it is damaged.

    barnabas log dump --records data/orders-0/00000000000000000000.log
    """
    problems = 0

    def counted(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        nonlocal problems
        for row in rows:
            problems += row["problem"] is not None
            yield row

    for file in files:
        try:
            rows = dump_file(file, records=records)
        except ValueError as error:
            fail(str(error))
        show_stream(counted(rows), output)
    if problems:
        fail(f"{problems} damaged {'entry' if problems == 1 else 'entries'}; see the problem column")
