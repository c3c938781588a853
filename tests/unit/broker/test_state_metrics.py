"""Coordinators, the care of logs and the controller in the metrics: by state, and in names that are written down."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.metrics import Metrics
from barnabas.broker.metrics_endpoint import render, take
from barnabas.broker.samples import StateSample
from barnabas.net.server import Traffic
from barnabas.storage.cleaner import Totals
from barnabas.storage.scrubber import ScrubTotals

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"


def rendered(state: StateSample) -> str:
    body, _ = render(take(Metrics(), Traffic(), [], state), {}, "")
    return body.decode()


def test_coordinators_the_care_of_logs_and_the_controller_are_told() -> None:
    text = rendered(
        StateSample(
            {("group", "loaded"): 49, ("group", "loading"): 1, ("transaction", "loaded"): 0},
            {("classic", "Stable"): 3, ("consumer", "Reconciling"): 2},
            {"Ongoing": 4, "CompleteCommit": 5},
            Totals(7, 1.5, 1000, 400),
            1,
            True,
            3,
            ScrubTotals(2, 5000, 1, 6),
            8,
            9,
        )
    )
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    for labels, expected in {
        ("barnabas_coordinator_shards", ("coordinator", "group"), ("state", "loaded")): 49,
        ("barnabas_coordinator_shards", ("coordinator", "group"), ("state", "loading")): 1,
        ("barnabas_coordinator_shards", ("coordinator", "transaction"), ("state", "loaded")): 0,
        ("barnabas_groups", ("state", "Stable"), ("type", "classic")): 3,
        ("barnabas_groups", ("state", "Reconciling"), ("type", "consumer")): 2,
        ("barnabas_transactional_ids", ("state", "Ongoing")): 4,
        ("barnabas_transactional_ids", ("state", "CompleteCommit")): 5,
        ("barnabas_compaction_rounds_total",): 7,
        ("barnabas_compaction_seconds_total",): 1.5,
        ("barnabas_compaction_read_bytes_total",): 1000,
        ("barnabas_compaction_written_bytes_total",): 400,
        ("barnabas_compaction_uncleanable_logs",): 1,
        ("barnabas_controller_active",): 1,
        ("barnabas_unclean_elections_total",): 3,
        ("barnabas_scrub_rounds_total",): 2,
        ("barnabas_scrub_read_bytes_total",): 5000,
        ("barnabas_scrub_damaged_segments_total",): 1,
        ("barnabas_scrub_rebuilt_indexes_total",): 6,
        ("barnabas_damaged_logs",): 8,
        ("barnabas_renewed_logs_total",): 9,
    }.items():
        assert found[labels] == expected, labels


def test_every_metric_is_documented_and_no_other() -> None:
    offered = set(re.findall(r"^# TYPE (barnabas_\w+)", rendered(StateSample()), re.MULTILINE))
    documented = set(re.findall(r"^\| `(barnabas_\w+)`", DOCUMENT.read_text(), re.MULTILINE))
    assert documented == offered
