"""The long proof that pipelines lose and double nothing: `make soak`, or

    python -m tests.spark.soak --kills 30 --sinks topic,sqlite --seed 7

For each kind of sink a pipeline runs while its driver, its Python workers and its broker are killed, thirty times in
all; and `offline`, the load of a lake in tasks, while its driver is. Those that begin with `direct-` have their rows
written by tasks, the others by way of Spark. The rows must be those of an undisturbed run, row for row, and so must the
dead letters. A line for each sink reports what was done; the first that ends otherwise stops the soak, with the logs
and the seed to repeat it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.peers import MariaDbServer, PostgresServer
from tests.spark.killing import ARROW, OFFLINE, RECORDS, STEADY, MakeLanding, Victim, disturb
from tests.spark.landings import Delta, Lake, Table, Topic, TopicOfRecords


@contextmanager
def _on_mariadb(directory: Path) -> Iterator[MakeLanding]:
    with MariaDbServer(directory / "mariadb") as server:
        yield functools.partial(Table, url=server.url)


@contextmanager
def _on_postgresql(directory: Path) -> Iterator[MakeLanding]:
    with PostgresServer() as server:
        yield functools.partial(Table, url=server.url)


PLAIN: Mapping[str, MakeLanding] = {"parquet": Lake, "offline": Lake, "sqlite": Table, "topic": Topic, "delta": Delta}
SERVED: Mapping[str, Callable[[Path], AbstractContextManager[MakeLanding]]] = {
    "mariadb": _on_mariadb,
    "postgresql": _on_postgresql,
}
BY_SPARK = (*PLAIN, *SERVED)
DIRECT = tuple(f"direct-{sink}" for sink in BY_SPARK if sink != "delta")
"""Delta is always written by Spark."""


def soak(name: str, kills: int, seed: int, directory: Path) -> None:
    sink = name.removeprefix("direct-")
    # An offline load comes to its end by itself, and then has no worker that could be killed.
    way, mortal = (OFFLINE, [Victim.DRIVER]) if sink == "offline" else (STEADY, [*Victim])
    if name in DIRECT:
        way = replace(way, transform=RECORDS if sink == "topic" else ARROW)
    victims = [mortal[number % len(mortal)] for number in range(kills)]
    random.Random(seed).shuffle(victims)
    with ExitStack() as stack:
        make = stack.enter_context(SERVED[sink](directory)) if sink in SERVED else PLAIN[sink]
        make = TopicOfRecords if way.transform == RECORDS else make
        print(f"{name}: {disturb({sink: make}, victims, directory, seed, patience_s=300, way=way)}", flush=True)


def main() -> int:
    sinks = [*BY_SPARK, *DIRECT]
    parser = argparse.ArgumentParser(description="Kill what runs pipelines, and compare the rows.")
    parser.add_argument("--kills", type=int, default=30, help="for each kind of sink")
    parser.add_argument("--sinks", default=",".join(sinks), help=f"some of {', '.join(sinks)}")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no other sink after this time")
    chosen = parser.parse_args()
    wanted = chosen.sinks.split(",")
    for sink in wanted:
        if sink not in sinks:
            parser.error(f"there is no sink {sink!r} here: {', '.join(sinks)}")
    ends = time.monotonic() + chosen.minutes * 60
    for sink in itertools.takewhile(lambda _: time.monotonic() < ends, wanted):
        with tempfile.TemporaryDirectory(prefix=f"barnabas-soak-{sink}-") as directory:
            soak(sink, chosen.kills, chosen.seed, Path(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
