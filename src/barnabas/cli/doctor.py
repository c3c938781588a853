"""`barnabas doctor`: what this machine offers a broker, what is missing, and whether the cluster answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.options import BootstrapOption, OutputOption, examples
from barnabas.cli.output import Output, show_rows
from barnabas.cli.up import DEFAULT_DATA_DIR

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=examples("barnabas doctor", "barnabas doctor --data-dir /var/lib/barnabas -o json"))
def doctor(
    data_dir: Annotated[Path, typer.Option(help="Where a broker would keep its records.")] = Path(DEFAULT_DATA_DIR),
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check this machine, and the cluster of the context; exit code 1 if a broker cannot run here."""
    from barnabas.cli.cluster_checks import check_cluster
    from barnabas.cli.findings import Status
    from barnabas.cli.machine_checks import CHECKS

    disk = _existing_parent(data_dir.absolute())
    findings = [finding for check in CHECKS for finding in check(disk)]
    findings += check_cluster(bootstrap)
    show_rows(findings, output)
    if any(finding.status is Status.FAILURE for finding in findings):
        raise typer.Exit(1)


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.is_dir())
