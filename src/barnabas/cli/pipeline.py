"""`barnabas pipeline`: run, validate, plan, status, backfill, audit, compact, replay."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import OutputOption, examples
from barnabas.cli.output import Output, counted, fail, format_table, plain, show, show_rows
from barnabas.cli.pipeline_work import (
    ProgressOutput,
    audit_rows,
    compact_rows,
    load,
    state_of,
    telling,
    working,
)

if TYPE_CHECKING:
    from barnabas.spark.pipeline.job import Totals

app = typer.Typer(
    help="Move topics into tables, lakes and topics, exactly once, as one YAML file says.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's YAML file.")]
MasterOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", show_default="local[*,4]", help="Where Spark runs: local[...], spark://, yarn, k8s://."
    ),
]
ProgressOption = Annotated[ProgressOutput, typer.Option("--progress", help="How to show progress, on standard error.")]
JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Add progress to a file, as JSON lines.")
]
MetricsOption = Annotated[
    str | None, typer.Option("--metrics", metavar="[HOST:]PORT", help="Serve Prometheus metrics while it runs.")
]
ReportOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", show_default="report.html in the state directory", help="Where the HTML report goes."),
]


@app.command(
    epilog=examples(
        "barnabas pipeline run clicks.yaml",
        "barnabas pipeline run clicks.yaml --master spark://host:7077 --metrics 9108 --progress json",
    )
)
def run(
    file: FileArgument,
    master: MasterOption = None,
    progress: ProgressOption = ProgressOutput.AUTO,
    json_file: JsonOption = None,
    metrics: MetricsOption = None,
    report: ReportOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a pipeline until it is done, or for ever in mode micro-batch. Ctrl-C stops it after the batch under way."""
    from barnabas.spark.pipeline.runner import run_pipeline

    with telling():
        pipeline = load(file)
        state = state_of(pipeline, file)
        began = time.monotonic()
        work = working(pipeline, state, master, progress, json_file, metrics, report, announces=True)
        with work as (spark, reporter, stop):
            totals = run_pipeline(pipeline, spark, state, functions_in=file.parent, reporter=reporter, stop=stop)
        _show_totals(pipeline.name, totals, time.monotonic() - began, report or state.report_file, output)


@app.command(epilog=examples("barnabas pipeline validate clicks.yaml"))
def validate(file: FileArgument, output: OutputOption = Output.TABLE) -> None:
    """Check a pipeline's file, without Spark and without a cluster."""
    with telling():
        pipeline = load(file)
    parts = {"sources": pipeline.sources, "transforms": pipeline.transforms, "sinks": pipeline.sinks}
    counts = {name: len(entries) for name, entries in parts.items()}
    told = ", ".join(counted(count, name.rstrip("s")) for name, count in counts.items())
    found = {"pipeline": pipeline.name, "mode": pipeline.mode.value, **counts}
    show(found, output, f"{file} is right: pipeline {pipeline.name}, mode {pipeline.mode.value}, {told}")


@app.command(epilog=examples("barnabas pipeline plan clicks.yaml", "barnabas pipeline plan clicks.yaml -o json"))
def plan(file: FileArgument, master: MasterOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show what a run would do now: how each sink is fed, and the offsets of each batch. Nothing is changed."""
    from barnabas.spark.pipeline.preview import preview
    from barnabas.spark.pipeline.runner import looking
    from barnabas.spark.pipeline.session import spark_session

    with telling():
        pipeline = load(file)
        state = state_of(pipeline, file)
        with (
            spark_session(pipeline.name, master, pipeline.spark, state.directory) as spark,
            looking(pipeline, spark, state, file.parent) as (job, sinks),
        ):
            found = preview(job, sinks)
    tables = "\n\n".join([format_table(found["sinks"]), format_table(found["batches"], most=100)])
    show(found, output, f"{tables}\n\n{found['records']:,} records to read")


@app.command(epilog=examples("barnabas pipeline status clicks.yaml", "barnabas pipeline status clicks.yaml -o json"))
def status(file: FileArgument, output: OutputOption = Output.TABLE) -> None:
    """Tell whether a pipeline runs, how far it is and how far behind, without Spark."""
    from barnabas.spark.pipeline.status import find_status

    with telling():
        pipeline = load(file)
        found = find_status(pipeline, state_of(pipeline, file))
    heading = f"pipeline {found.pipeline}  {'running' if found.is_running else 'stopped'}  lag {found.lag:,}"
    facts = [{"batches": found.batches, "dead_letters": found.dead_letters, **found.rows}]
    values = {**plain(found), "lag": found.lag}
    show(values, output, "\n\n".join([heading, format_table(facts), format_table(values["partitions"])]))


@app.command(
    epilog=examples(
        "barnabas pipeline backfill clicks.yaml --from 2026-11-01 --to 2026-11-02",
    )
)
def backfill(
    file: FileArgument,
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="The first record's time, such as 2026-11-01.")],
    to: Annotated[str, typer.Option("--to", metavar="TIME", help="The time before which the last record is.")],
    master: MasterOption = None,
    progress: ProgressOption = ProgressOutput.AUTO,
    output: OutputOption = Output.TABLE,
) -> None:
    """Load the records of a span of time, wherever the pipeline is by now; the same span a second time does nothing."""
    from barnabas.spark.pipeline.backfill import backfill_of, run_backfill
    from barnabas.spark.pipeline.lock import check_free

    with telling():
        pipeline = load(file)
        span = backfill_of(pipeline, state_of(pipeline, file), from_, to)
        check_free(span.lock_file, span.of)
        began = time.monotonic()
        with working(span.pipeline, span.state, master, progress) as (spark, reporter, stop):
            totals = run_backfill(span, spark, functions_in=file.parent, reporter=reporter, stop=stop)
        _show_totals(span.pipeline.name, totals, time.monotonic() - began, span.state.report_file, output)


@app.command(epilog=examples("barnabas pipeline audit clicks.yaml", "barnabas pipeline audit clicks.yaml -o json"))
def audit(file: FileArgument, master: MasterOption = None, output: OutputOption = Output.TABLE) -> None:
    """Compare what a lake holds with the topics, by partition and hour; exit code 1 if anything differs."""
    with telling():
        rows = audit_rows(load(file), file, master)
    show_rows(rows, output)
    wrong = [row for row in rows if not row["ok"]]
    if wrong:
        fail(f"{counted(len(wrong), 'row')} of {len(rows)} differ from the topics")


@app.command(epilog=examples("barnabas pipeline compact clicks.yaml"))
def compact(file: FileArgument, master: MasterOption = None, output: OutputOption = Output.TABLE) -> None:
    """Merge the small files of a lake into larger ones; readers see the old ones or the new ones, never both."""
    with telling():
        rows = compact_rows(load(file), file, master)
    show_rows(rows, output)


@app.command(epilog=examples("barnabas pipeline replay clicks.yaml --dry-run", "barnabas pipeline replay clicks.yaml"))
def replay(
    file: FileArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be sent.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send dead letters back to the topics that they came from, each once."""
    import asyncio

    from barnabas.spark.pipeline import replay as replays

    with telling():
        pipeline = load(file)
        if dry_run:
            letters = asyncio.run(replays.list_letters(pipeline))
            rows = [
                {"topic": each.topic, "partition": each.partition, "offset": each.offset, "cause": each.cause}
                for each in letters
            ]
        else:
            rows = [{"topic": topic, "sent": count} for topic, count in asyncio.run(replays.replay(pipeline)).items()]
    show_rows(rows, output)


def _show_totals(name: str, totals: Totals, seconds: float, report: Path, output: Output) -> None:
    from barnabas.spark.pipeline.charts import duration_shown

    found = {
        "pipeline": name,
        "batches": totals.batches,
        "records": totals.records,
        "rows": totals.rows,
        "left_to_spark": totals.unsure,
        "seconds": round(seconds, 3),
        "report": str(report),
    }
    rows = ", ".join(f"{counted(count, 'row')} to {sink}" for sink, count in totals.rows.items()) or "no rows"
    steps = counted(totals.batches, "step")
    if totals.unsure:
        share = f"{100 * totals.unsure / max(1, totals.records):.2g} %"
        rows += f", {counted(totals.unsure, 'record')} ({share}) decoded by Spark"
    work = f"{counted(totals.records, 'record')} in {duration_shown(seconds)} ({steps}), {rows}"
    show(found, output, f"pipeline {name}: {work}; report: {report}")
