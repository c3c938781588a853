"""`barnabas produce`: lines of standard input become records."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.options import BootstrapOption, OutputOption, TopicArgument, examples
from barnabas.cli.output import Output, show_rows
from barnabas.cli.session import run

if TYPE_CHECKING:
    from barnabas.client.client import Client

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


CodecOption = Annotated[Codec, typer.Option("--compression", "-z")]
AcksOption = Annotated[Acks, typer.Option(help="Who must have a record before it counts as sent.")]

_BATCH_SIZE = 256 << 10  # a pipe brings many lines at once
_MAX_BLOCK_MS = 5_000  # people wait for an answer
_DELIVERY_TIMEOUT_MS = 30_000


@app.command(
    epilog=examples(
        "echo 'k1:hello' | barnabas produce orders -K : -H source=shell",
        "barnabas produce orders -z zstd < orders.txt",
        "barnabas consume orders -o json | barnabas produce copy --json",
        "barnabas produce copy --json --keep-partition < orders.json",
    )
)
def produce(
    topic: TopicArgument,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="A line is key, separator, value.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="For each record; may be repeated.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Instead of the one that the key chooses.")
    ] = None,
    compression: CodecOption = Codec.NONE,
    acks: AcksOption = Acks.ALL,
    null_if_empty: Annotated[
        bool, typer.Option("--null-if-empty", "-Z", help="An empty key or value is a null (a tombstone).")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Lines are JSON, as `consume -o json` prints it.")] = False,
    keep_partition: Annotated[
        bool, typer.Option("--keep-partition", help="With --json: each record to the partition that its line names.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write lines of standard input to a topic, and tell where they went."""
    if json and (key_separator is not None or null_if_empty):
        raise typer.BadParameter("--key-separator and --null-if-empty are for lines of text, not for --json")
    if keep_partition and (not json or partition is not None):
        raise typer.BadParameter("--keep-partition goes with --json, and not with --partition")

    from barnabas.cli import writing
    from barnabas.client.producer import Producer

    headers = [writing.parse_header(text) for text in header or ()]
    parse = writing.json_parser(keep_partition) if json else writing.line_parser(key_separator, null_if_empty)

    async def work(client: Client) -> list[dict[str, Any]]:
        producer = Producer(
            client,
            acks=acks.value if acks is Acks.ALL else int(acks),
            compression_type=compression.value,
            batch_size=_BATCH_SIZE,
            max_block_ms=_MAX_BLOCK_MS,
            delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
        )
        async with producer:
            return await writing.produce_lines(producer, topic, parse, headers=headers, partition=partition)

    rows = run(bootstrap, work)
    if not quiet:
        show_rows(rows, output)
