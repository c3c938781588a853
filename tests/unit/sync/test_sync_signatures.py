"""The clients without async have what those with it have, under the same names, with the same parameters and types."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas import sync
from barnabas.client.produce.transactions import Transaction
from barnabas.sync import admin as sync_admin
from barnabas.sync.portal import Portal
from barnabas.sync.producer import Transaction as SyncTransaction
from tests.peers import ROOT

NOUNS = [name for name, member in vars(barnabas.Admin).items() if isinstance(member, property)]

PROGRAM = """
from barnabas import RecordMetadata
from barnabas.sync import Admin, Consumer, Delivery, Producer

with Producer("localhost:9092", acks="all", linger_ms=5) as producer:
    landed: RecordMetadata = producer.send("orders", b"value", key=b"key")
    handle: Delivery = producer.post("orders", b"value")
    offset: int = handle.result(10).offset
    producer.send("orders", b"value", partition="0")  # wrong
    with producer.transaction() as transaction:
        transaction.send_offsets(Consumer("localhost:9092"))
    producer.flsh()  # wrong
with Consumer("localhost:9092", topics=["orders"], group="g") as consumer:
    for record in consumer:
        offset = record.offset
        record.ofset  # wrong
    for batch in consumer.batches(commit=True):
        offset = batch.next_offset
    consumer.poll(timeout_ms="soon")  # wrong
    position: str = consumer.position(record.partition)  # wrong
with Admin("localhost:9092") as admin:
    names: list[str] = [topic.name for topic in admin.topics.list()]
    admin.topics.create(3)  # wrong
Producer("localhost:9092", batch_siez=1)  # wrong
Consumer("localhost:9092", isolation_level="read_everything")  # wrong
"""


def pairs() -> Iterator[tuple[type, type]]:
    for name in ("Producer", "Consumer", "Admin"):
        yield getattr(barnabas, name), getattr(sync, name)
    yield Transaction, SyncTransaction
    for noun in NOUNS:
        name = "".join(word.capitalize() for word in noun.split("_"))
        module = __import__(f"barnabas.client.admin.{noun}", fromlist=[name])
        yield getattr(module, name), getattr(sync_admin, name)


def methods(cls: type) -> dict[str, object]:
    members = inspect.getmembers(cls, lambda member: inspect.isfunction(member) or isinstance(member, property))
    return {name: member for name, member in members if not name.startswith("_")}


@pytest.mark.parametrize(("with_async", "without"), list(pairs()), ids=lambda cls: cls.__name__)
def test_every_method_is_there_with_the_same_parameters(with_async: type, without: type) -> None:
    wanted, found = methods(with_async), methods(without)
    assert wanted.keys() <= found.keys()
    for name, method in wanted.items():
        if inspect.isfunction(method):
            signature, other = inspect.signature(method), inspect.signature(found[name])  # type: ignore[arg-type]
            expected = [(each.name, each.kind, each.default) for each in signature.parameters.values()]
            assert [(each.name, each.kind, each.default) for each in other.parameters.values()] == expected, name
            assert not inspect.iscoroutinefunction(found[name]), name
    if "__init__" in vars(without) and "cluster" in inspect.signature(with_async).parameters:
        assert inspect.signature(without) == inspect.signature(with_async)


def test_a_wrong_option_is_refused_when_the_object_is_made() -> None:
    with pytest.raises(TypeError, match="did you mean 'linger_ms'"):
        sync.Producer("localhost:9092", linger_s=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes the address of a cluster"):
        sync.Admin(Portal)  # type: ignore[arg-type]

    async def on_assigned(_: object) -> None: ...

    with pytest.raises(TypeError, match="on_assigned must be a plain function"):
        sync.Consumer("localhost:9092", on_assigned=on_assigned)


def test_what_is_not_open_says_how_to_open_it() -> None:
    producer = sync.Producer("localhost:9092")
    with pytest.raises(RuntimeError, match=r"not open yet; use `with Producer\(\.\.\.\)`"):
        producer.post("orders", b"value")


def test_mypy_knows_the_signatures(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", ".mypy_cache/users"]
    done = subprocess.run([*command, str(program)], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    told = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert told == wrong, done.stdout + done.stderr
