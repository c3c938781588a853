"""What a run came to: a table for people, and a file of JSON for the record."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.chaos.rounds import Verdict

PLACE = Path(__file__).resolve().parents[2] / ".benchmarks"
_FIRST = ("seconds", "kills", "acknowledged records", "committed transactions")


def show(verdicts: Sequence[Verdict]) -> None:
    whole = total([verdict.figures for verdict in verdicts])
    names = [*_FIRST, *sorted(set(whole) - set(_FIRST))]
    table = Table("round", *names, "anomalies", title="chaos")
    for verdict in verdicts:
        told = (f"{verdict.figures[name]:,}" for name in names)
        table.add_row(f"{verdict.round.number}: {verdict.round.shape}", *told, str(len(verdict.problems)))
    found = sum(len(verdict.problems) for verdict in verdicts)
    table.add_row("all", *(f"{whole[name]:,}" for name in names), str(found))
    console = Console()
    Console(width=None if console.is_terminal else 160).print(table)


def write_down(options: Mapping[str, Any], verdicts: Sequence[Verdict]) -> Path:
    """Beside the figures of the benchmarks, a file for each run."""
    PLACE.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = PLACE / f"chaos-{now:%Y%m%dT%H%M%S}.json"
    told = {
        "at": now.isoformat(timespec="seconds"),
        "machine": platform.platform(),
        **options,
        "total": total([verdict.figures for verdict in verdicts]),
        "faults": total([verdict.faults for verdict in verdicts]),
        "anomalies": sum(len(verdict.problems) for verdict in verdicts),
        "rounds": [
            {
                "shape": str(verdict.round.shape),
                "figures": verdict.figures,
                "faults": verdict.faults,
                "setbacks": verdict.setbacks,
                "problems": verdict.problems,
            }
            for verdict in verdicts
        ],
    }
    path.write_text(json.dumps(told, indent=1))
    return path


def total(counters: Sequence[Counter[str]]) -> Counter[str]:
    return sum(counters, Counter[str]())
