"""`barnabas bench`: put a measured load on a cluster, with the client that programs use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import BootstrapOption, OutputOption, TopicArgument, examples
from barnabas.cli.output import Output, format_table, show
from barnabas.cli.produce import Acks, AcksOption, Codec, CodecOption
from barnabas.cli.session import run

if TYPE_CHECKING:
    from barnabas.cli.measure import Load
    from barnabas.client.client import Client

app = typer.Typer(
    help="Measure a cluster: records and bytes per second, latencies.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)

RecordsOption = Annotated[int, typer.Option("--records", "-n", min=1, help="How many records.")]
SizeOption = Annotated[int, typer.Option("--size", "-s", min=1, metavar="BYTES", help="The size of a value.")]


@app.command(
    epilog=examples(
        "barnabas bench produce load --records 1000000 --size 100",
        "barnabas bench produce load --rate 1000 --records 10000 --acks all -o json",
        "barnabas bench produce load -z lz4 --linger-ms 20 --batch-size 131072",
    )
)
def produce(
    topic: TopicArgument,
    records: RecordsOption = 100_000,
    size: SizeOption = 100,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="PER_SECOND", help="At most so many records a second.")
    ] = None,
    compression: CodecOption = Codec.NONE,
    acks: AcksOption = Acks.ALL,
    batch_size: Annotated[int, typer.Option(min=1, metavar="BYTES")] = 16_384,
    linger_ms: Annotated[int, typer.Option(min=0)] = 5,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write records to a topic as fast as it takes them, or at a rate.

    The latency is that from when a record is due until it is acknowledged: without --rate, from when there is room for
    it, so that it tells how long the queues are rather than how quick the cluster is.
    """

    async def work(client: Client) -> Load:
        from barnabas.cli import loads
        from barnabas.client.producer import Producer

        producer = Producer(
            client,
            acks=acks.value if acks is Acks.ALL else int(acks),
            compression_type=compression.value,
            batch_size=batch_size,
            linger_ms=linger_ms,
        )
        async with producer:
            return await loads.produce(client, producer, topic, records, size, rate)

    _show(run(bootstrap, work), output)


@app.command(epilog=examples("barnabas bench consume load", "barnabas bench consume load --records 1000000 -o json"))
def consume(
    topic: TopicArgument,
    records: Annotated[int | None, typer.Option("--records", "-n", min=1, show_default="all that are there")] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read a topic from its beginning, record by record, up to the end that it has now.

    The time counts from the first request; opening connections is no part of it.
    """

    async def work(client: Client) -> Load:
        from barnabas.cli import loads

        return await loads.consume(client, topic, records)

    _show(run(bootstrap, work), output)


@app.command(
    epilog=examples("barnabas bench latency load", "barnabas bench latency load --rate 100 --records 1000 -o json")
)
def latency(
    topic: TopicArgument,
    records: RecordsOption = 1000,
    size: SizeOption = 100,
    rate: Annotated[float, typer.Option(min=0.001, metavar="PER_SECOND", help="Records a second.")] = 100.0,
    acks: AcksOption = Acks.ALL,
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write records one by one at a rate, read them back, and tell how long each was on its way.

    The latency is that from when a record is due to be written until a reader has it.
    """

    async def work(client: Client) -> Load:
        from barnabas.cli import loads
        from barnabas.client.producer import Producer

        async with Producer(client, acks=acks.value if acks is Acks.ALL else int(acks), linger_ms=0) as producer:
            return await loads.round_trips(client, producer, topic, records, size, rate)

    _show(run(bootstrap, work), output)


def _show(load: Load, output: Output) -> None:
    rates, latencies = load.rates(), load.latencies()
    shown = format_table([rates])
    if latencies:
        rates["latency"] = latencies
        shown += f"\n\nlatency\n{format_table([latencies])}"
    show(rates, output, shown)
