"""The package as its users' tools see it: typed, quick to import, silent unless asked."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.programs import run

WRONG = "# wrong"
TYPED_PROGRAM = """
import asyncio

from barnabas import Admin, Consumer, KafkaError, Producer, TopicPartition


async def work(address: str) -> list[int]:
    offsets: list[int] = []
    async with Producer(address, acks="all", linger_ms=5, compression_type="zstd") as producer:
        told = await producer.send("orders", b"value", key=b"key", headers=[("trace", b"1")], partition=0)
        offsets.append(told.offset)
        delivery = producer.post("orders", b"value")
        offsets.append((await delivery).offset)
        async with producer.transaction() as transaction:
            await producer.send("orders", None, key=b"key")
            await transaction.send_offsets(Consumer(address))
        await producer.send("orders", value=b"value", partition="0")  # wrong
        told.offset.decode()  # wrong
    async with Consumer(address, topics=["orders"], group="workers", isolation_level="read_committed") as consumer:
        async for record in consumer:
            offsets.append(record.offset)
            record.ofset  # wrong
            break
        async for batch in consumer.batches():
            offsets.append(batch.next_offset)
            break
        await consumer.commit()
        consumer.assign([TopicPartition("orders", 0)])
        consumer.poll(timeout_ms="soon")  # wrong
    async with Admin(address) as admin:
        await admin.topics.create("orders", partitions=3)
        await admin.topics.create(3)  # wrong
    Producer(address, batch_siez=1)  # wrong
    Consumer(address, isolation_level="read_everything")  # wrong
    return offsets


try:
    asyncio.run(work("localhost:9092"))
except KafkaError as error:
    print(error.retriable, error.code.name)
"""


def test_mypy_knows_the_clients_and_catches_wrong_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TYPED_PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", ".mypy_cache/users"]
    checked = subprocess.run([*command, str(program)], capture_output=True, text=True, timeout=110, check=False)
    found = {int(line.split(":")[1]) for line in checked.stdout.splitlines() if ": error:" in line}
    expected = {number for number, line in enumerate(TYPED_PROGRAM.splitlines(), 1) if WRONG in line}
    assert found == expected, checked.stdout + checked.stderr


def test_importing_the_clients_brings_nothing_heavy() -> None:
    program = """
    from barnabas import Admin
    heavy = "pyarrow", "numpy", "pandas", "kazoo", "typer", "rich", "yaml", "prometheus_client", "sqlite3", "uvloop"
    print(*[module for module in heavy if module in sys.modules])
    async def main(): pass
    """
    assert run(program, "-", "-") == "\n"


@pytest.mark.proof
@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_importing_a_client_is_quick(name: str) -> None:
    program = f"""
    import time
    for module in [name for name in sys.modules if name.startswith("barnabas")]:
        del sys.modules[module]
    before = time.process_time()
    from barnabas import {name}
    print(time.process_time() - before)
    async def main(): pass
    """
    assert float(run(program, "-", "-")) < 0.5  # a tenth of it where nothing else runs; development mode


def test_clients_log_under_their_name_and_print_nothing_by_themselves(cluster: str, topic_name: str) -> None:
    program = """
    async def main():
        async with Producer(address) as producer:
            for value in (b"poison", b'"good"'):
                await producer.send(topic, value)
        options = {"value_deserializer": "json", "auto_offset_reset": "earliest", "on_poison_record": "skip"}
        async with Consumer(address, topics=[topic], group=topic, **options) as consumer:
            async for record in consumer:
                print(record.value)
                break
    """
    assert run(program, cluster, topic_name) == "good\n"
    logged = program.replace(
        "async def main", "import logging; logging.basicConfig(stream=sys.stdout)\n    async def main"
    )
    output = run(logged, cluster, f"{topic_name}-2")
    assert "WARNING:barnabas.client" in output
    assert f"{topic_name}-2-0 at offset 0" in output


def test_the_package_has_a_handler_that_does_nothing() -> None:
    import barnabas.client  # noqa: F401

    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("barnabas").handlers)
