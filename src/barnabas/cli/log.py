"""`barnabas log`: look into the files of a data directory."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.options import OutputOption, examples
from barnabas.cli.output import Output, RowPrinter, fail

app = typer.Typer(
    help="Look into the files of a data directory.", rich_markup_mode=None, add_completion=False, no_args_is_help=True
)


_ROWS_AT_A_TIME = 500


@app.callback()
def log() -> None:
    """Look into the files of a data directory."""


@app.command(
    epilog=examples(
        "barnabas log dump data/orders-0/00000000000000000000.index",
        "barnabas log dump --records -o json data/orders-0/00000000000000000000.log",
    )
)
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", exists=True, dir_okay=False)],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Every record of a .log file, not only its batches.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what a segment, index, producer snapshot or checkpoint holds; exit code 1 if it is damaged."""
    from barnabas.cli.dump import dump_file

    problems = 0
    for file in files:
        try:
            rows = dump_file(file, records=records)
        except ValueError as error:
            fail(str(error))
        if len(files) > 1 and output is Output.TABLE:
            print(f"{file}:")
        printer = RowPrinter(output)
        while chunk := list(islice(rows, _ROWS_AT_A_TIME)):
            printer.print(chunk)
            problems += sum(row["problem"] is not None for row in chunk)
    if problems:
        fail(f"{problems} damaged {'entry' if problems == 1 else 'entries'}; see the problem column")
