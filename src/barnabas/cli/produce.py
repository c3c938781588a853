"""`barnabas produce`: lines of standard input become records."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from barnabas.cli.lines import read_lines
from barnabas.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, OutputOption
from barnabas.cli.output import Output, fail, show_rows
from barnabas.cli.record_json import InputRecord, parse_record
from barnabas.cli.session import run
from barnabas.client.accumulator import Delivery
from barnabas.client.client import Client
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Producer
from barnabas.records.record import Header

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class InputFormat(StrEnum):
    LINES = "lines"
    JSON = "json"


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


_BATCH_SIZE = 256 << 10  # a pipe brings many lines at once
_MAX_BLOCK_MS = 5_000  # people wait for an answer
_DELIVERY_TIMEOUT_MS = 30_000
_ACKS = {Acks.NONE: ACKS_NONE, Acks.LEADER: ACKS_LEADER, Acks.ALL: ACKS_ALL}


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="A line is key, separator, value.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="For each record; may be repeated.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Instead of the one that the key chooses.")
    ] = None,
    compression: Annotated[Codec, typer.Option("--compression", "-z")] = Codec.NONE,
    acks: Annotated[Acks, typer.Option(help="Who must have a record before it counts as sent.")] = Acks.ALL,
    null_if_empty: Annotated[
        bool, typer.Option("--null-if-empty", "-Z", help="An empty key or value is a null (a tombstone).")
    ] = False,
    input_format: Annotated[
        InputFormat, typer.Option("--input", "-i", help="`json` takes what `consume -o json` prints.")
    ] = InputFormat.LINES,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write lines of standard input to a topic, and tell where they went.

    echo 'k1:hello' | barnabas produce orders -K : -H source=shell
    """
    headers = tuple(_parse_header(text) for text in header or ())
    parse: Callable[[bytes], InputRecord] = parse_record
    if input_format is InputFormat.LINES:
        separator = None if key_separator is None else key_separator.encode()
        parse = partial(_parse_line, separator=separator, null_if_empty=null_if_empty)

    async def work(client: Client) -> list[dict[str, object]]:
        sent = Sent()
        producer = Producer(
            client,
            acks=_ACKS[acks],
            compression_type=compression.value,
            batch_size=_BATCH_SIZE,
            max_block_ms=_MAX_BLOCK_MS,
            delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
        )
        async with producer:
            async for number, line in _numbered(read_lines(sys.stdin.fileno())):
                try:
                    record = parse(line)
                except ValueError as error:
                    await producer.flush()
                    fail(f"line {number}: {error}; the lines before it were sent")
                delivery = await producer.post(
                    topic,
                    record.value,
                    key=record.key,
                    headers=record.headers + headers,
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                sent.count(delivery)
        return await sent.rows()

    rows = run(bootstrap, work)
    if not quiet:
        show_rows(rows, output)


class Sent:
    """How many records went to each partition, and the first and last of them."""

    def __init__(self) -> None:
        self._counts: Counter[TopicPartition] = Counter()
        self._first: dict[TopicPartition, Delivery] = {}
        self._last: dict[TopicPartition, Delivery] = {}

    def count(self, delivery: Delivery) -> None:
        partition = delivery.partition
        self._counts[partition] += 1
        self._first.setdefault(partition, delivery)
        self._last[partition] = delivery

    async def rows(self) -> list[dict[str, object]]:
        return [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "records": self._counts[partition],
                "first_offset": (await self._first[partition]).offset,
                "last_offset": (await self._last[partition]).offset,
            }
            for partition in sorted(self._counts)
        ]


async def _numbered(chunks: AsyncIterator[list[bytes]]) -> AsyncIterator[tuple[int, bytes]]:
    number = 0
    async for lines in chunks:
        for line in lines:
            number += 1
            yield number, line


def _parse_line(line: bytes, separator: bytes | None, null_if_empty: bool) -> InputRecord:
    key: bytes | None = None
    value: bytes | None = line
    if separator is not None:
        key, found, value = line.partition(separator)
        if not found:
            raise ValueError(f"no key: {separator.decode()!r} is not in it")
    return InputRecord(key or None, value or None) if null_if_empty else InputRecord(key, value)


def _parse_header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not of the form name=value", param_hint="--header")
    return name, value.encode()
