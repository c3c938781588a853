"""Keys go to the partitions that Kafka's Java client sends them to."""

from __future__ import annotations

import subprocess
from random import Random

from barnabas.client.produce.partitioner import partition_of_key
from tests.peers import ROOT, java_command

PARTITION_COUNT = 31
PROGRAM = ROOT / "tests" / "interop" / "clients" / "Partitions.java"


def test_ten_thousand_keys_go_where_javas_client_sends_them() -> None:
    random = Random(7)
    keys = [random.randbytes(random.randrange(1, 60)) for _ in range(5000)] + [b"key-%d" % n for n in range(5000)]
    done = subprocess.run(
        java_command(PROGRAM, str(PARTITION_COUNT)),
        input="".join(f"{key.hex()}\n" for key in keys),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [partition_of_key(key, PARTITION_COUNT) for key in keys] == [int(line) for line in done.stdout.split()]
