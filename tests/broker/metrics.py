"""The metrics of a broker, as a scrape brings them."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.peers import HOST

Sample = tuple[str, frozenset[tuple[str, str]]]


class Metrics:
    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def arguments(self) -> list[str]:
        """What to start a broker with."""
        return ["--metrics-port", str(self.port)]

    def scrape(self) -> dict[Sample, float]:
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """One sample; 0 if nothing was counted under these labels so far."""
        return self.scrape().get((name, frozenset(labels.items())), 0.0)
