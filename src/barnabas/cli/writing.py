"""Lines of standard input on their way into a topic, and where they came to lie."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import typer

from barnabas.cli.lines import read_lines
from barnabas.cli.output import fail
from barnabas.cli.progress import Unit, file_bytes, progress
from barnabas.cli.record_json import InputRecord, parse_record
from barnabas.client.errors import BufferFull
from barnabas.client.produce.delivery import Delivery, RecordMetadata
from barnabas.client.producer import Producer
from barnabas.records.record import Header

_POSTS_PER_TURN = 500

Parse = Callable[[bytes], InputRecord]
"""Raises a ValueError that tells what is wrong with a line."""


async def produce_lines(
    producer: Producer, topic: str, parse: Parse, *, headers: Sequence[Header], partition: int | None
) -> list[dict[str, Any]]:
    """Post each line as it comes; a row for each partition that got some."""
    landed = Landed()
    number = read_bytes = 0
    with progress("sending", file_bytes(sys.stdin.fileno()), Unit.BYTES) as on_progress:
        async for lines in read_lines(sys.stdin.fileno()):
            for line in lines:
                number += 1
                try:
                    record = parse(line)
                except ValueError as error:
                    await producer.flush()
                    fail(f"line {number}: {error}; the lines before it were sent")
                chosen = record.partition if partition is None else partition
                landed.await_(await _post(producer, topic, record, (*record.headers, *headers), chosen))
                if number == _POSTS_PER_TURN:
                    await landed.first()  # the topic is found before all the others come to wait for it
                elif number % _POSTS_PER_TURN == 0:
                    await asyncio.sleep(0)  # a file is never waited for, and what is posted has to leave
            read_bytes += sum(map(len, lines)) + len(lines)
            await landed.settle()
            on_progress(read_bytes)
        await producer.flush()
        await landed.settle()
    return landed.rows()


async def _post(
    producer: Producer, topic: str, record: InputRecord, headers: Sequence[Header], partition: int | None
) -> Delivery:
    """Post a record, as soon as there is room for it."""
    while True:
        try:
            return producer.post(
                topic,
                record.value,
                key=record.key,
                headers=headers,
                partition=partition,
                timestamp=record.timestamp_ms,
            )
        except BufferFull:
            await producer.room()


class Landed:
    """How many records came to lie in each partition, and the first and the last offset of them."""

    def __init__(self) -> None:
        self._waiting: deque[Delivery] = deque()
        self._rows: dict[tuple[str, int], dict[str, Any]] = {}

    def await_(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)

    async def first(self) -> None:
        """Wait for the oldest of those that are not settled."""
        if self._waiting:
            await self._waiting[0]

    async def settle(self) -> None:
        """Count those that are acknowledged, so that they need not be kept."""
        while self._waiting and self._waiting[0].is_done:
            self._count(await self._waiting.popleft())

    def _count(self, found: RecordMetadata) -> None:
        start = {"topic": found.topic, "partition": found.partition, "records": 0, "first_offset": found.offset}
        row = self._rows.setdefault((found.topic, found.partition), start)
        row["records"] += 1
        row["last_offset"] = found.offset

    def rows(self) -> list[dict[str, Any]]:
        return [row for _, row in sorted(self._rows.items())]


def json_parser(keep_partition: bool) -> Parse:
    return parse_record if keep_partition else lambda line: parse_record(line)._replace(partition=None)


def line_parser(key_separator: str | None, null_if_empty: bool) -> Parse:
    separator = None if key_separator is None else key_separator.encode()

    def parse(line: bytes) -> InputRecord:
        key: bytes | None = None
        value: bytes | None = line
        if separator is not None:
            key, found, value = line.partition(separator)
            if not found:
                raise ValueError(f"no key: {separator.decode()!r} is not in it")
        return InputRecord(key or None, value or None) if null_if_empty else InputRecord(key, value)

    return parse


def parse_header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not of the form name=value", param_hint="--header")
    return name, value.encode()
