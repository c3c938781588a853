"""The files of stopped brokers: replicas hold the same bytes, and Kafka's own tool finds nothing wrong with them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from barnabas.records.batch import check_batch
from tests.cluster.three_brokers import NUMBERS, Cluster
from tests.peers import kafka_tool

_COMPLAINTS = re.compile(
    r"isvalid: false|mismatch|not found|out of order|corrupt|exception|error|invalid", re.IGNORECASE
)


def diverging(cluster: Cluster, topic: str, high_watermarks: Sequence[int]) -> list[str]:
    """The partitions whose replicas differ below the watermark; segments may begin at other offsets in each."""
    found = []
    for partition, high_watermark in enumerate(high_watermarks):
        logs = {number: _committed(_directory(cluster, number, topic, partition), high_watermark) for number in NUMBERS}
        if len(set(logs.values())) > 1:
            sizes = {number: len(log) for number, log in logs.items()}
            found.append(f"{topic}-{partition} up to {high_watermark}: {sizes} bytes, {_first_difference(logs)}")
    return found


def check_with_kafkas_tool(cluster: Cluster, high_watermarks: Mapping[str, Sequence[int]]) -> None:
    """Every log and index of every replica of these topics in one run, for a JVM takes its time to start."""
    files = [
        str(file)
        for topic, watermarks in high_watermarks.items()
        for partition in range(len(watermarks))
        for number in NUMBERS
        for file in sorted(_directory(cluster, number, topic, partition).iterdir())
        if file.suffix in (".log", ".index", ".timeindex")
    ]
    options = ("--deep-iteration", "--index-sanity-check")
    printed = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(files), *options)
    complaint = _COMPLAINTS.search(printed)
    assert complaint is None, printed[max(complaint.start() - 1000, 0) :][:2000]
    assert printed.count("\nDumping ") + printed.startswith("Dumping ") == len(files)
    assert printed.count("| offset: ") >= len(NUMBERS) * sum(map(sum, high_watermarks.values()))


def _directory(cluster: Cluster, number: int, topic: str, partition: int) -> Path:
    return cluster.data_dir(number) / f"{topic}-{partition}"


def _committed(directory: Path, high_watermark: int) -> bytes:
    """All batches below the watermark, each with its right checksum."""
    log = memoryview(b"".join(file.read_bytes() for file in sorted(directory.glob("*.log"))))
    position = end_offset = 0
    while end_offset < high_watermark:
        header = check_batch(log, position)
        assert header.base_offset == end_offset, f"{directory}: {header.base_offset} where {end_offset} was due"
        position += header.size
        end_offset = header.next_offset
    return bytes(log[:position])


def _first_difference(logs: dict[int, bytes]) -> str:
    shortest = min(len(log) for log in logs.values())
    position = next((at for at in range(shortest) if len({log[at] for log in logs.values()}) > 1), shortest)
    return f"the same in the first {position}"
