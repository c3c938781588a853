"""The parts of the harness do what they say: a test of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

from barnabas.records.batch import write_base_offset
from barnabas.records.builder import BatchBuilder
from tests.chaos import damage, namespaces
from tests.chaos.journal import Journal
from tests.chaos.network import both, ring
from tests.chaos.resent import sent_again
from tests.checker.history import UNTOLD, Acknowledged, FinalLog, SentAgain, TopicPartition
from tests.peers import absent

PLACE = TopicPartition("topic", 0)
OTHER = TopicPartition("topic", 1)

CUTS = """
import socket, subprocess, sys
from tests.chaos.network import CLIENTS, Network, entering

network = Network()
address = network.add("server")
program = '''
import socket
server = socket.create_server(("0.0.0.0", 7))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"hello")
    connection.close()
'''
server = subprocess.Popen([*entering("server"), sys.executable, "-c", program], stdout=subprocess.PIPE)
server.stdout.readline()

def hears() -> bool:
    try:
        with socket.create_connection((address, 7), 1) as connection:
            return connection.recv(5) == b"hello"
    except TimeoutError:
        return False

there, back = (CLIENTS, "server"), ("server", CLIENTS)
assert hears()
with network.cut({there}):
    assert not hears()
    with network.cut({there, back}):
        assert not hears()
    assert not hears()
with network.cut({back}):
    assert not hears()
assert hears()
server.kill()
"""


def test_a_way_that_is_cut_swallows_everything_until_the_last_cut_ends() -> None:
    if problem := namespaces.missing():
        absent(problem)
    subprocess.run([*namespaces.command(), sys.executable, "-c", CUTS], timeout=60, check=True)


def test_in_a_ring_everybody_sees_a_majority_and_no_two_see_the_same() -> None:
    for nodes in (["a", "b", "c"], ["a", "b", "c", "d", "e"]):
        cut = ring(nodes)
        seen = [frozenset(other for other in nodes if (node, other) not in cut) for node in nodes]
        assert all(len(each) > len(nodes) / 2 for each in seen)
        assert len(set(seen)) > 1
        assert all((b, a) in cut for a, b in cut)
    assert both(["a"], ["a", "b"]) == {("a", "b"), ("b", "a")}


def test_damage_changes_one_bit_or_takes_the_end(tmp_path: Path) -> None:
    file = tmp_path / "file"
    whole = bytes(range(256)) * 20
    file.write_bytes(whole)
    damage.flip_a_bit(file, Random(1))
    differing = [(a ^ b) for a, b in zip(whole, file.read_bytes(), strict=True) if a != b]
    assert [bin(each).count("1") for each in differing] == [1]
    file.write_bytes(whole)
    damage.cut_the_end(file, Random(1))
    assert 0 < len(whole) - file.stat().st_size <= 2000
    assert whole.startswith(file.read_bytes())


def test_damage_finds_old_segments_indexes_and_checkpoints(tmp_path: Path) -> None:
    place = tmp_path / "topic-0"
    place.mkdir()
    names = (
        "00.log",
        "01.log",
        "02.log",
        "03.log",
        "00.index",
        "00.timeindex",
        "00.snapshot",
        "leader-epoch-checkpoint",
    )
    for name in names:
        (place / name).write_bytes(b"x")
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"x")
    (tmp_path / "other-0").mkdir()
    topics = ["topic"]
    assert [(file.name, end) for file, end in damage.old_segments(tmp_path, topics)] == [("00.log", 1), ("01.log", 2)]
    assert [file.name for file in damage.last_segments(tmp_path, topics)] == ["03.log"]
    assert {file.name for file in damage.indexes(tmp_path, topics)} == {"00.index", "00.timeindex", "00.snapshot"}
    assert {file.name for file in damage.checkpoints(tmp_path, topics)} == {
        "leader-epoch-checkpoint",
        "recovery-point-offset-checkpoint",
    }


def test_acknowledgements_that_lie_side_by_side_are_one_event() -> None:
    journal = Journal()
    journal.acknowledge("ann", [(PLACE, 4, b"a"), (PLACE, 5, b"b"), (OTHER, 6, b"c"), (OTHER, UNTOLD, b"d")])
    journal.acknowledge("ann", [(OTHER, UNTOLD, b"e"), (OTHER, 0, b"f"), (OTHER, 2, b"g")])
    assert [event for _, event in journal.history.events] == [
        Acknowledged("ann", 0, PLACE, 4, (b"a", b"b")),
        Acknowledged("ann", 0, OTHER, 6, (b"c",)),
        Acknowledged("ann", 0, OTHER, UNTOLD, (b"d",)),
        Acknowledged("ann", 0, OTHER, UNTOLD, (b"e",)),
        Acknowledged("ann", 0, OTHER, 0, (b"f",)),
        Acknowledged("ann", 0, OTHER, 2, (b"g",)),
    ]
    assert journal.acknowledged == 7


def test_copies_of_a_record_count_as_sent_again_where_their_producers_epoch_differs(tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000000000.log"
    written = [(b"a", 0), (b"b", 0), (b"a", 1), (b"b", 0), (b"a", 1)]
    with segment.open("wb") as out:
        for offset, (value, epoch) in enumerate(written):
            builder = BatchBuilder(producer_id=7, producer_epoch=epoch, base_sequence=offset)
            builder.append(None, value)
            batch = bytearray(builder.build())
            write_base_offset(batch, 0, offset)
            out.write(batch)
    records = tuple((offset, value) for offset, (value, _) in enumerate(written))
    assert sent_again(FinalLog(PLACE, 0, records), [segment]) == SentAgain(PLACE, (2,))
    assert sent_again(FinalLog(PLACE, 0, records[:2]), [segment]) is None
    assert sent_again(FinalLog(PLACE, 0, (records[1], records[3])), [segment]) is None
