"""What a run of tests shows: one line of progress, failures at once, and at the end what was missing and what it cost.

The line is written over on a terminal; elsewhere there is one now and then. A worker process that dies ends the run:
the test that it ran is named, in the last line too.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from tests.grouping import without_group

LINE_S = 30.0  # between two lines of progress where nobody watches a terminal
REFRESH_S = 0.1


class Progress:
    """Registered where results come together: not in the workers of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._total = 0
        self._counts: Counter[str] = Counter()
        self._dead: list[str] = []
        self._missing: Counter[str] = Counter()
        self._is_terminal = sys.stdout.isatty()

    @property
    def _reporter(self) -> TerminalReporter:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(reporter, TerminalReporter)
        return reporter

    # counting

    def pytest_sessionstart(self) -> None:
        self._reporter.showfspath = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = max(self._total, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self._total = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No letters: the line of progress takes their place."""
        if report.passed and report.when != "call":
            return "", "", ""
        outcome = "error" if report.failed and report.when in ("setup", "teardown") else report.outcome
        return outcome, "", outcome.upper()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        report.nodeid = without_group(report.nodeid)
        self._counts["done"] += report.when == "teardown"
        if report.failed:
            self._counts["failed"] += 1
            self._show_failure(report)
        elif report.skipped:
            self._counts["skipped"] += 1
            self._note_missing(report)
        self._show_progress()

    def _note_missing(self, report: pytest.TestReport) -> None:
        if isinstance(report.longrepr, tuple):
            self._missing[report.longrepr[2].removeprefix("Skipped: ")] += 1

    # showing

    def _show_failure(self, report: pytest.TestReport) -> None:
        self._clear()
        writer = self._reporter._tw
        writer.sep("_", f"{report.nodeid} ({report.when})" if report.when != "call" else report.nodeid, red=True)
        report.toterminal(writer)
        for title, content in report.sections:
            writer.sep("-", title)
            writer.line(content.rstrip())
        writer.flush()

    def _show_progress(self) -> None:
        now = time.monotonic()
        if now - self._shown_at < (REFRESH_S if self._is_terminal else LINE_S):
            return
        self._shown_at = now
        done, total, failed = self._counts["done"], self._total, self._counts["failed"]
        took = timedelta(seconds=int(now - self._began))
        line = f"{done} of {total} tests, {failed} failed, {took}"
        if self._is_terminal:
            print(f"\r{line}\x1b[K", end="", flush=True)
        else:
            print(line, flush=True)

    def _clear(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", flush=True)

    # the end

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: object) -> None:
        self._dead.append(without_group(crashitem))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._clear()
        self._config.option.tbstyle = "no"  # failures were shown when they happened

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        for reason, count in sorted(self._missing.items()):
            terminalreporter.write_line(f"{count} skipped: {reason}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        minutes = sum(each.ru_utime + each.ru_stime for each in used) / 60
        print(f"{timedelta(seconds=int(time.monotonic() - self._began))} on the clock, {minutes:.1f} CPU minutes")
        for test in self._dead:
            print(f"FAILED: the test process died in {test}", flush=True)
