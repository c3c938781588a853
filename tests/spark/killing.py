"""A pipeline whose driver, Python workers and broker are killed while it runs, and what must come of it.

The pipeline runs as its users run it, as a process of its own. Records arrive in waves; while a wave is worked on,
something is killed with SIGKILL at a moment that a seed chooses. What dies and takes the pipeline with it is started
again, until everything has arrived. So is an offline load, which comes to its end by itself and is wanted again for
every wave. Then the rows are compared with those of an undisturbed run, and so are dead letters: some records are torn.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
import yaml

from barnabas import NewRecord
from barnabas.spark import worker_daemon
from barnabas.sync import Admin, Producer
from tests.peers import BarnabasServer, free_port
from tests.spark import arrow_functions
from tests.spark.landings import Landing, Row, committed
from tests.spark.quick import QUICK_SPARK

TOPIC = "orders"
PARTITIONS = 2
BATCH = 60
TASK = 8
"""Of an offline load: a wave is many tasks, so that it is under way for some time after the first is done."""
WAVE = 2 * BATCH
LONGEST_DELAY_S = 1.5
"""After the first batch of a wave: the time of a batch or two, so that every step of a batch is hit some day."""
EARLY_SHARE = 0.25
START_S = 10.0
"""Some victims die earlier: while the pipeline starts, and takes up what the last one left."""


@dataclass(frozen=True)
class Way:
    """How a pipeline works through the records."""

    mode: str
    transform: str = "sql"
    """Or ARROW: the same rows on the direct path, where sinks have one."""
    records_per_batch: int | None = None
    records_per_task: int = 1_000_000


STEADY = Way("micro-batch", records_per_batch=BATCH)
"""Batch after batch, without an end."""
OFFLINE = Way("batch", records_per_task=TASK)
"""Up to now, in tasks that are committed in any order."""
ARROW, RECORDS = "arrow", "records"
"""RECORDS are for a topic whose tasks send keys and values as they are."""
UNDISTURBED = Way("available-now")


class Victim(StrEnum):
    DRIVER = "driver"
    WORKER = "worker"
    BROKER = "broker"


class Orders:
    """The broker, and what was sent to it."""

    def __init__(self, directory: Path) -> None:
        self._data, self._port = directory / "broker", free_port()
        self._server = BarnabasServer(self._data, port=self._port, timeout=60)
        self.sent = 0
        with Admin(self.address) as admin:
            admin.topics.create(TOPIC, partitions=PARTITIONS)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def send_wave(self) -> None:
        values = [_value(number) for number in range(self.sent, self.sent + WAVE)]
        with Producer(self.address) as producer:
            producer.send_many(TOPIC, [NewRecord(value, b"%d" % (place % 7)) for place, value in enumerate(values)])
        self.sent += WAVE

    def kill(self) -> None:
        """It comes back at once, with the records that it has on disk."""
        self._server.kill()
        self._server = BarnabasServer(self._data, port=self._port, timeout=60)

    def stop(self) -> None:
        self._server.stop()

    def expected(self) -> Counter[Row]:
        """What the pipeline makes of the records."""
        orders = [_order(number) for number in range(self.sent) if not _is_torn(number)]
        return Counter(
            (order["id"], order["customer"].upper(), order["amount"] * 2) for order in orders if order["id"] % 10
        )

    def torn(self) -> Counter[bytes]:
        return Counter(_value(number) for number in range(self.sent) if _is_torn(number))


def _value(number: int) -> bytes:
    value = json.dumps(_order(number)).encode()
    return value[:-5] if _is_torn(number) else value


def _is_torn(number: int) -> bool:
    return number % 10 == 3


def _order(number: int) -> dict[str, Any]:
    return {"id": number, "customer": f"customer {number % 13}", "amount": number / 4}


def definition(name: str, way: Way, address: str, landings: Mapping[str, Landing], state: Path) -> dict[str, Any]:
    """A pipeline's file, as YAML reads it."""
    settings = {key: value for landing in landings.values() for key, value in landing.spark.items()}
    return {
        "name": name,
        "mode": way.mode,
        "trigger": "100ms",
        "cluster": {"bootstrap_servers": address},
        "state": str(state),
        "max_records_per_batch": way.records_per_batch,
        "max_records_per_task": way.records_per_task,
        "sources": [{"name": "orders", "topics": [TOPIC], "schema": "id BIGINT, customer STRING, amount DOUBLE"}],
        "transforms": [{"name": "doubled", **_TRANSFORMS[way.transform]}],
        "sinks": [{"name": sink, "from": "doubled", **landing.settings} for sink, landing in landings.items()],
        "dead_letters": {"topic": _letters(name)},
        "spark": {**QUICK_SPARK, **settings},
    }


def _letters(pipeline: str) -> str:
    return f"{pipeline}.dead"


_TRANSFORMS = {
    "sql": {
        "sql": "SELECT id, upper(customer) AS customer, amount * 2 AS amount, _topic, _partition, _offset, _timestamp"
        " FROM orders WHERE id % 10 <> 0",
    },
    ARROW: {"from": "orders", "arrow": f"{arrow_functions.__name__}.{arrow_functions.doubled.__name__}"},
    RECORDS: {"from": "orders", "arrow": f"{arrow_functions.__name__}.{arrow_functions.doubled_records.__name__}"},
}


class PipelineProcess:
    """`barnabas pipeline run`, which may die at any time and is then started again."""

    def __init__(self, directory: Path, pipeline: Mapping[str, Any], most_starts: int) -> None:
        self.file, self.state = directory / f"{pipeline['name']}.yaml", Path(pipeline["state"])
        self.file.write_text(yaml.safe_dump(dict(pipeline)))
        self._process: subprocess.Popen[bytes] | None = None
        self._family: list[psutil.Process] = []
        self._most_starts = most_starts
        self.starts = 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ensure_running(self) -> None:
        if self.is_running:
            return
        self._bury()
        assert self.starts < self._most_starts, f"it has ended too often, after {self.starts} starts"
        self.starts += 1
        command = [sys.executable, "-m", "barnabas.cli", "pipeline", "run", str(self.file), "--master", "local[2,4]"]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def batches(self) -> int:
        """How many were done, by all runs."""
        with suppress(FileNotFoundError):
            return (self.state / "progress.jsonl").read_bytes().count(b"\n")
        return 0

    def driver(self) -> list[psutil.Process]:
        """The Python program and its JVM."""
        return [process for process in self._find_family() if not _is_worker(process)]

    def workers(self) -> list[psutil.Process]:
        """Python processes that do the work of tasks: children of the daemon that forks them."""
        return [process for process in self._find_family() if _is_worker(process) and _is_worker(process.parent())]

    def run(self, timeout: float) -> None:
        """Start it, and let it come to its own end."""
        self.ensure_running()
        assert self._process is not None
        assert self._process.wait(timeout) == 0

    def stop(self, timeout: float) -> None:
        """Ask it to end after its batch, as a terminal does: Java and Spark's Python processes get the signal too."""
        if self._process is not None and self.is_running:
            os.killpg(self._process.pid, signal.SIGINT)
            assert self._process.wait(timeout) == 0

    def end(self) -> None:
        """Leave nothing behind."""
        self._find_family()
        for process in self._family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._bury()

    def tail(self) -> str:
        logs = [self._log, self.state / "spark.log"]
        return "\n".join(line for log in logs if log.exists() for line in log.read_text().splitlines()[-30:])

    @property
    def _log(self) -> Path:
        return self.file.with_suffix(".log")

    def _find_family(self) -> list[psutil.Process]:
        if self._process is not None:
            with suppress(psutil.NoSuchProcess):
                head = psutil.Process(self._process.pid)
                self._family = [head, *head.children(recursive=True)]
        return [process for process in self._family if _is_alive(process)]

    def _bury(self) -> None:
        """Wait until workers have seen that their driver is gone, as they must by themselves."""
        if self._process is not None:
            self._process.wait(10)
        psutil.wait_procs(self._family, timeout=90)
        left = [process for process in self._family if _is_alive(process)]
        for process in left:
            process.kill()
        assert not left, f"these outlived their driver: {left}"
        self._family = []


_DAEMONS = ("pyspark.daemon", worker_daemon.__name__)


def _is_alive(process: psutil.Process) -> bool:
    """And no zombie, which can be killed as often as one likes."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _is_worker(process: psutil.Process | None) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return process is not None and any(word in _DAEMONS for word in process.cmdline())
    return False


@dataclass
class Report:
    """What was done to a pipeline."""

    seed: int
    kills: Counter[Victim] = field(default_factory=Counter)
    starts: int = 0
    rows: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        kills = ", ".join(f"{count} times the {victim}" for victim, count in sorted(self.kills.items()))
        return f"killed {kills}; {self.starts} starts, {self.rows} rows, {self.seconds:.0f} s (seed {self.seed})"


MakeLanding = Callable[[Path], Landing]


def disturb(
    make: Mapping[str, MakeLanding],
    victims: Sequence[Victim],
    directory: Path,
    seed: int,
    patience_s: float = 300,
    run_alone: Callable[[PipelineProcess, float], None] = PipelineProcess.run,
    way: Way = STEADY,
) -> Report:
    """Kill the victims one after the other while a pipeline runs. Every sink ends up as it does without that."""
    chance, report, began = random.Random(seed), Report(seed), time.monotonic()
    orders = Orders(directory)
    pipelines = {}
    try:
        undisturbed_way = replace(UNDISTURBED, transform=RECORDS) if way.transform == RECORDS else UNDISTURBED
        for name, its_way in (("disturbed", way), ("undisturbed", undisturbed_way)):
            place = directory / name
            place.mkdir()
            landings = {sink: landing(place) for sink, landing in make.items()}
            pipeline = definition(name, its_way, orders.address, landings, place / "state")
            pipelines[name] = PipelineProcess(place, pipeline, 2 + 3 * len(victims)), landings
        process, landings = pipelines["disturbed"]
        for victim in victims:
            orders.send_wave()  # first: an offline load looks only once how far the topic goes
            process.ensure_running()
            if chance.random() < EARLY_SHARE:
                time.sleep(chance.uniform(0, START_S))
            else:
                _wait_for(_more_batches(process), process, patience_s)
                time.sleep(chance.uniform(0, LONGEST_DELAY_S))
            _kill(victim, process, orders, chance, patience_s)
            report.kills[victim] += 1
        expected = orders.expected()
        for landing in landings.values():
            _wait_for(_arrival(landing, orders.address, expected.total()), process, patience_s)
        process.stop(patience_s)
        other, undisturbed = pipelines["undisturbed"]
        run_alone(other, patience_s)
        for sink, landing in landings.items():
            found, right = landing.rows(orders.address), undisturbed[sink].rows(orders.address)
            assert right == expected, f"{sink}, undisturbed: {_difference(right, expected)}"
            assert found == right, f"{sink}: {_difference(found, right)}"
        for name in pipelines:
            letters = Counter(record.value for record in committed(orders.address, _letters(name), partitions=1))
            assert letters == orders.torn(), f"dead letters, {name}: {_difference(letters, orders.torn())}"
    except BaseException:
        for each, _ in pipelines.values():
            print(f"seed {seed}\n{each.tail()}", file=sys.stderr)
        raise
    finally:
        for each, _ in pipelines.values():
            each.end()
        orders.stop()
    report.starts, report.rows, report.seconds = process.starts, expected.total(), time.monotonic() - began
    return report


def _more_batches(process: PipelineProcess) -> Callable[[], bool]:
    before = process.batches()
    return lambda: process.batches() > before


def _arrival(landing: Landing, address: str, rows: int) -> Callable[[], bool]:
    return lambda: landing.rows(address).total() >= rows


def _wait_for(question: Callable[[], bool], process: PipelineProcess, patience_s: float) -> None:
    """Until the answer is yes; a pipeline that has ended meanwhile is started again."""
    deadline = time.monotonic() + patience_s
    while not question():
        assert time.monotonic() < deadline, f"nothing moved for {patience_s} s"
        process.ensure_running()
        time.sleep(0.3)


def _kill(victim: Victim, process: PipelineProcess, orders: Orders, chance: random.Random, patience_s: float) -> None:
    if victim is Victim.BROKER:
        orders.kill()
        return
    found: list[psutil.Process] = []

    def look() -> bool:
        found[:] = process.workers() if victim is Victim.WORKER else process.driver()
        return bool(found)

    _wait_for(look, process, patience_s)
    for each in [chance.choice(found)] if victim is Victim.WORKER else found:
        with suppress(psutil.NoSuchProcess):
            each.kill()


def _difference(found: Counter[Any], expected: Counter[Any]) -> str:
    lost, more = expected - found, found - expected
    return f"{lost.total()} rows lost: {sorted(lost)[:5]}; {more.total()} too many: {sorted(more)[:5]}"
