"""What was measured, what it has to reach, and how it is told: on the terminal and in a JSON file.

Barnabas and a peer are measured in turn in every round. A ratio is Barnabas's figure over the peer's in the same round,
and the one that counts is the median over the rounds: a machine that slows down for a while spoils one round, not the
verdict.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
from rich.console import Console
from rich.table import Table

BARNABAS, KAFKA = "Barnabas", "Apache Kafka"

Round = Mapping[str, Mapping[str, float]]
"""For each side its figures by their names; Kafka's broker has `format` too: the seconds to prepare its storage."""


class Figure(NamedTuple):
    """One line of the table. The goal is a ratio: a floor where more is better, a ceiling where less is."""

    name: str
    title: str
    unit: str
    more_is_better: bool
    goal: float | None


class Line(NamedTuple):
    """A figure's medians, the median of its ratios, and whether that reaches the goal."""

    figure: Figure
    barnabas: float
    peer: float
    ratio: float

    @property
    def verdict(self) -> str:
        goal = self.figure.goal
        if goal is None:
            return ""
        return "ok" if (self.ratio >= goal if self.figure.more_is_better else self.ratio <= goal) else "short"


def lines(figures: Sequence[Figure], rounds: Sequence[Round], peer: str) -> list[Line]:
    return [
        Line(
            figure,
            median(measured[BARNABAS][figure.name] for measured in rounds),
            median(measured[peer][figure.name] for measured in rounds),
            median(measured[BARNABAS][figure.name] / measured[peer][figure.name] for measured in rounds),
        )
        for figure in figures
    ]


def is_short(figures: Sequence[Figure], rounds: Sequence[Round], peer: str) -> bool:
    """Whether any figure misses its goal."""
    return any(line.verdict == "short" for line in lines(figures, rounds, peer))


def show(
    figures: Sequence[Figure],
    rounds: Sequence[Round],
    machine: Mapping[str, str],
    work: str,
    *,
    title: str = "Barnabas and Apache Kafka",
    peer: str = KAFKA,
) -> None:
    table = Table(title=f"{title}, {work} work, rounds: {len(rounds)}", title_justify="left")
    table.add_column("work")
    for heading in (BARNABAS, peer, "unit", "ratio", "goal", ""):
        table.add_column(heading, justify="left" if heading == "unit" else "right")
    for line in lines(figures, rounds, peer):
        figure = line.figure
        goal = "" if figure.goal is None else f"{'>=' if figure.more_is_better else '<='} {figure.goal:.3g}x"
        table.add_row(
            figure.title,
            _number(line.barnabas),
            _number(line.peer),
            figure.unit,
            f"{line.ratio:.2f}x",
            goal,
            line.verdict,
        )
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    if peer == KAFKA:
        seconds = median(measured[KAFKA]["format"] for measured in rounds)
        console.print(f"Kafka also takes {seconds:.1f} s to format its storage once.")
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)


def save(
    name: str,
    figures: Sequence[Figure],
    rounds: Sequence[Round],
    machine: Mapping[str, str],
    work: str,
    directory: Path,
    *,
    peer: str = KAFKA,
) -> Path:
    directory.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = directory / f"{name}-{now:%Y%m%dT%H%M%S}.json"
    summary = {
        line.figure.name: {
            "unit": line.figure.unit,
            "barnabas": line.barnabas,
            "peer": line.peer,
            "ratio": line.ratio,
            "goal": line.figure.goal,
            "verdict": line.verdict,
        }
        for line in lines(figures, rounds, peer)
    }
    content = {"time": now.isoformat(), "work": work, "machine": machine, "summary": summary, "rounds": rounds}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def machine() -> dict[str, str]:
    """What the figures depend on."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    return {
        "cpu": f"{_cpu_model()} ({os.cpu_count()} cores)",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": java,
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def _cpu_model() -> str:
    """The processor's name, which Python itself does not know on Linux."""
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        return subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True).strip()
    return platform.processor() or platform.machine()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
