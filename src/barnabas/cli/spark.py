"""`barnabas spark`: what a Spark cluster needs in order to read and write topics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.options import OutputOption, examples
from barnabas.cli.output import Output, counted, fail, show
from barnabas.cli.progress import Unit, progress

app = typer.Typer(
    help="Prepare a Spark cluster for reading and writing topics.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)


@app.callback()
def spark() -> None:
    """A group, although it has one command."""


@app.command(
    epilog=examples(
        "barnabas spark archive",
        "barnabas spark archive /tmp/jobs.tar.gz --python /usr/bin/python3.11",
    )
)
def archive(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")] = Path("environment.tar.gz"),
    python: Annotated[
        str | None,
        typer.Option(metavar="PATH", show_default="as here", help="The interpreter on the cluster's machines."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Pack this environment for spark.archives, so that executors find barnabas and all else that is installed here."""
    from pathlib import PurePosixPath

    from barnabas.spark.archive import CannotPack, pack, plan, this_environment

    if not file.name.endswith((".tar.gz", ".tgz")):
        raise typer.BadParameter(f"{file.name}: Spark unpacks what is named .tar.gz or .tgz", param_hint="FILE")
    try:
        planned = plan(this_environment())
    except CannotPack as error:
        fail(f"cannot pack this environment: {error}")
    interpreter = PurePosixPath(python) if python else planned.environment.interpreter
    with progress(f"packing {file}", planned.bytes, Unit.BYTES) as on_progress:
        size = pack(planned, file, interpreter, on_progress)
    packed = {"archive": str(file), "files": len(planned.files), "bytes": size, "python": str(interpreter)}
    show(packed, output, f"packed {counted(len(planned.files), 'file')} into {file} ({size:,} bytes)\n{_use(file)}")


def _use(file: Path) -> str:
    return (
        "use it so:\n"
        f"  mkdir -p environment && tar -xzf {file} -C environment\n"
        f"  export PYSPARK_PYTHON=./environment/bin/python\n"
        f"  spark-submit --archives {file}#environment ..."
    )
