"""The report of a run: with one batch, with a thousand, with none, with an error, with hostile names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from barnabas.cli.pipeline_work import write_report
from barnabas.client.producer import NewRecord
from barnabas.spark.pipeline import letter_causes, run_summary
from barnabas.spark.pipeline.definition import Pipeline
from barnabas.spark.pipeline.definition_file import parse_pipeline
from barnabas.spark.pipeline.letter_causes import (
    MOST_CAUSES,
    OTHERS,
    LetterCauses,
    cause_kind,
    find_causes,
    letters_of_run,
    value_shown,
)
from barnabas.spark.pipeline.paths import Path as RowPath
from barnabas.spark.pipeline.paths import SinkFeed
from barnabas.spark.pipeline.progress import FilesWritten, PartitionProgress, Progress
from barnabas.spark.pipeline.replay import Letter
from barnabas.spark.pipeline.report import report_html
from barnabas.spark.pipeline.run_summary import MAX_FILES, Ending, RunSummary
from barnabas.spark.pipeline.sinks import WrittenFile
from barnabas.spark.pipeline.stopping import StopRequest
from barnabas.spark.ranges import OffsetRange

TIMES = " \N{MULTIPLICATION SIGN}"
BEGAN = 1_795_000_000.0
HOSTILE = "</title></style><script>alert(1)</script>\"'&<b \x00\u202e\ud800"
SHOP = """
name: shop
cluster: {bootstrap_servers: "127.0.0.1:1"}
sources: [{name: clicks, topics: [clicks], schema: id INT}]
transforms: [{name: carts, sql: "SELECT * FROM clicks WHERE id < 3"}]
sinks:
  - {name: lake, kind: lake, from: clicks, path: data/lake}
  - {name: table, kind: database, from: carts, url: "mysql://me:secret@db/shop", table: carts}
dead_letters: {topic: clicks.dead}
"""


@pytest.fixture
def pipeline() -> Pipeline:
    return parse_pipeline(SHOP, "shop.yaml", {})


def batch(number: int, *, of: int = 1, seconds: float = 2.0, topic: str = "clicks", sink: str = "lake") -> Progress:
    """100 records of a run of so many batches, one after the other, each with a file of its own hour."""
    done = 100 * (number + 1)
    hour = f"2026-11-{16 + number // 24 % 10:02}T{number % 24:02}"
    file = WrittenFile(f"file:/data/{sink}/hour={number}/part-{number}.parquet", hour, 90, 1_000)
    return Progress(
        at=BEGAN + 5 + 2 * (number + 1),
        pipeline="shop",
        query="offsets",
        batch=number,
        records=100,
        rows={"dead-letters": 10, sink: 90},
        batch_seconds=seconds,
        records_per_second=50.0,
        eta_seconds=0.0,
        lag=100 * of - done,
        partitions=(PartitionProgress(topic, 0, 0, done, 100 * of),),
        dead_letters=10,
        ranges=(OffsetRange(topic, 0, done - 100, done),),
        sink_seconds={"dead-letters": seconds / 4, sink: seconds / 2},
        files={sink: FilesWritten(1, 1_000, {hour: 90}, (file,))},
    )


def summed(progress: Sequence[Progress], ending: Ending = Ending.FINISHED, error: str | None = None) -> RunSummary:
    summary = RunSummary("shop", BEGAN)
    for each in progress:
        summary.report(each)
    summary.end(max([BEGAN, *(each.at for each in progress)]) + 1, ending, error)
    return summary


def letter(cause: str, offset: int = 7, value: bytes | None = b"torn", topic: str = "clicks") -> Letter:
    return Letter(topic, 0, offset, cause, NewRecord(value, None, (), 0))


class Page:
    """A page as a browser sees it."""

    def __init__(self, html: str) -> None:
        self.html = html
        self.body = ElementTree.fromstring(html[html.index("<body>") : html.index("</html>")])
        self.text = re.sub(r"\s+", " ", " ".join(self.body.itertext()))
        self.tiles = {
            tile.findtext("dt"): tile.findtext("dd") for tile in self.body.iter("div") if tile.find("dt") is not None
        }
        self.sections = {part.findtext("h2"): part for part in self.body.iter("section")}

    def table(self, section: str) -> list[list[str]]:
        rows = self.sections[section].iter("tr")
        return [["".join(cell.itertext()) for cell in row] for row in rows]


def test_one_batch_shows_where_the_time_went_and_no_chart_over_time(pipeline: Pipeline) -> None:
    page = Page(report_html(summed([batch(0)]), pipeline))
    assert "Finished 100 records in 1 batch and 8 s, nothing left to read." in page.text
    assert [*page.sections] == [
        "Where the time went",
        "Rows per hour: lake",
        "Dead letters",
        "Partitions",
        "Files written",
        "Pipeline",
    ]
    assert page.tiles == {
        "Records read": "100",
        "Rows to lake": "90",
        "Records per second": "50",
        "Duration": "8 s",
        "Written": "1 kB",
        "Lag at the end": "0",
        "Dead letters": "10",
    }
    spent = [part.get("title") for part in page.sections["Where the time went"].iter("span") if part.get("title")]
    assert spent == [
        "before the first batch: 5 s, 62 %",
        "writing dead-letters: 667 ms, 8 %",
        "writing lake: 1.33 s, 17 %",
        "after the last batch: 1 s, 12 %",
    ]
    assert page.table("Partitions")[1] == ["clicks-0", "0", "100", "100", "0", "100"]


def test_a_thousand_batches_show_throughput_lag_and_the_ten_slowest(pipeline: Pipeline) -> None:
    progress = [batch(number, of=1_000, seconds=1.5 if number == 700 else 1.0) for number in range(1_000)]
    html = report_html(summed(progress), pipeline)
    page = Page(html)
    assert "Finished 100,000 records in 1,000 batches and 33 min 26 s, nothing left to read." in page.text
    chart = next(page.sections["Throughput and lag"].iter("svg"))
    assert [text.text for text in chart.iter("text") if text.get("class") == "title"] == [
        "Throughput, records/s",
        "Lag, records",
    ]
    slowest = page.table("Slowest batches")
    assert len(slowest) == 11
    assert slowest[1] == ["700", "2026-11-18 11:30:05", "clicks-0: 70,000 to 70,100", "100", "66.7", "1.5 s"]
    assert len(page.table("Files written")) == MAX_FILES + 1
    assert "200 files, the last ones; 800 more are not listed" in page.text
    assert len(html) < 300_000


def test_memory_does_not_grow_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_summary, "MAX_STEPS", 100)
    summary = summed([batch(number, of=1_000) for number in range(1_000)])
    [query] = summary.queries.values()
    assert len(query.steps) <= 101
    assert (query.batches, summary.records, len(summary.slowest), len(summary.last_files)) == (1_000, 100_000, 10, 200)
    assert summary.busy_seconds == pytest.approx(2_000)
    assert "Throughput, records/s" in report_html(summary)


def test_the_report_of_a_run_with_nothing_to_do_says_so(pipeline: Pipeline) -> None:
    page = Page(report_html(summed([]), pipeline))
    assert "Finished at once: there was nothing new to read." in page.text
    assert [*page.sections] == ["Pipeline"]
    assert not list(page.body.iter("svg"))


def test_the_report_says_how_a_run_failed_or_was_stopped() -> None:
    failed = Page(report_html(summed([batch(0, of=3)], Ending.FAILED, "the disk is full")))
    assert "Failed after 1 batch: the disk is full What was committed stays" in failed.text
    early = Page(report_html(summed([], Ending.FAILED, "topic 'clicks' not found")))
    assert "Failed before the first batch was done: topic 'clicks' not found" in early.text
    stopped = Page(report_html(summed([batch(0, of=3)], Ending.STOPPED)))
    assert "Stopped on request after 1 batch, 200 records left to read." in stopped.text


def test_hostile_names_values_and_errors_do_not_break_the_page(pipeline: Pipeline) -> None:
    progress = [batch(number, of=2, topic=HOSTILE, sink=HOSTILE) for number in range(2)]
    summary = summed([*progress, replace(progress[0], query=HOSTILE)], Ending.FAILED, HOSTILE)
    summary.pipeline = HOSTILE
    summary.feeds([SinkFeed(HOSTILE, HOSTILE, "offsets", RowPath.SPARK, HOSTILE)])
    letters = LetterCauses(problem=HOSTILE)
    for offset in range(9):
        letters.add(letter(HOSTILE, offset, HOSTILE.encode(errors="surrogatepass") + b"\xff", HOSTILE))
    hostile = replace(pipeline, transforms=(replace(pipeline.transforms[0], sql=HOSTILE),))
    html = report_html(summary, hostile, letters, Path("/data"))
    html.encode()
    page = Page(html)
    assert "<script" not in html
    assert (html.count("</style>"), html.count("</title></head>") + html.count("</title><style>")) == (1, 1)
    assert {element.tag for element in page.body.iter()}.isdisjoint({"script", "iframe", "object", "link", "img"})
    assert not [name for element in page.body.iter() for name in element.attrib if name.startswith("on")]
    assert "alert(1)" in page.text
    assert "\\x00\\u202e\\ud800" in page.text
    for link in page.body.iter("a"):
        assert re.fullmatch(r"[\w/.%=-]+", link.get("href") or "")


def test_a_page_needs_nothing_from_elsewhere(pipeline: Pipeline) -> None:
    html = report_html(summed([batch(number, of=3) for number in range(3)]), pipeline)
    assert not re.search(r"https?:|url\(|@import|src=", html)


def test_files_are_linked_relative_to_the_report(tmp_path: Path) -> None:
    files = (
        WrittenFile(f"file:{tmp_path}/lake/date=2026-11-16/a b#1.parquet", "2026-11-16T10", 5, 50),
        WrittenFile("hdfs://namenode/lake/b.parquet", "2026-11-16T10", 5, 50),
    )
    given = replace(batch(0), files={"lake": FilesWritten(2, 100, {"2026-11-16T10": 10}, files)})
    page = Page(report_html(summed([given]), place=tmp_path / "state" / "shop"))
    [link] = page.body.iter("a")
    assert link.get("href") == "../../lake/date%3D2026-11-16/a%20b%231.parquet"
    assert "hdfs://namenode/lake/b.parquet" in page.text
    [absolute] = Page(report_html(summed([given]))).body.iter("a")
    assert absolute.get("href") == f"file://{tmp_path}/lake/date%3D2026-11-16/a%20b%231.parquet"


def test_the_definition_names_the_path_of_each_sink_and_no_password(pipeline: Pipeline) -> None:
    summary = summed([batch(0)])
    summary.feeds([SinkFeed("lake", "clicks", "offsets", RowPath.DIRECT, "tasks decode and write with Arrow")])
    page = Page(report_html(summary, pipeline))
    rows = page.table("Pipeline")
    assert ["lake", "lake", "data/lake", "clicks", "offsets", "direct", "tasks decode and write with Arrow"] in rows
    assert ["table", "database", "carts", "carts", "", "", ""] in rows
    assert ["carts", "SELECT * FROM clicks WHERE id < 3"] in rows
    assert "secret" not in page.html


def test_queries_have_a_line_and_a_legend_each() -> None:
    stateful = [
        replace(batch(number, of=2), query="sessions", rows={"sessions": 4}, state_rows=40 + number, state_bytes=2_000)
        for number in range(2)
    ]
    page = Page(report_html(summed([batch(0, of=2), batch(1, of=2), *stateful])))
    assert page.tiles["State at the end"] == "41"
    keys = page.sections["Throughput and lag"].iter("span")
    assert [key.text for key in keys] == ["offsets (dead-letters, lake)", "sessions"]
    assert "State, rows" in page.text
    assert [row[0] for row in page.table("Partitions")] == ["Query", "offsets (dead-letters, lake)", "sessions"]


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (
            "JSONDecodeError: Expecting ',' delimiter: line 1 column 21 (char 20)",
            "JSONDecodeError: Expecting ',' delimiter: line N column N (char N)",
        ),
        ("ValueError: column 'at' is \"so, on\", not timestamp", "ValueError: column 'at' is …, not timestamp"),
        ("ValueError: column 'c3' is missing, and the schema", "ValueError: column 'c3' is missing, and the schema"),
        ("'utf-8' codec can't decode byte 0xff in position 0", "'utf-8' codec can't decode byte N in position N"),
        ("", "unknown"),
    ],
)
def test_causes_that_differ_in_values_only_are_of_one_kind(cause: str, kind: str) -> None:
    assert cause_kind(cause) == kind


def test_dead_letters_are_shown_by_cause_with_bounded_samples() -> None:
    letters = LetterCauses()
    for offset in range(8):
        letters.add(letter(f"ValueError: column 'id' is {offset}, not int", offset, b"x" * 100_000))
    letters.add(letter("no braces", 99, None))
    page = Page(report_html(summed([batch(0), batch(1)]), letters=letters))
    heads = [" ".join(head.itertext()) for head in page.sections["Dead letters"].iter("summary")]
    assert heads == [f"8 {TIMES} ValueError: column 'id' is …, not int", f"1 {TIMES} no braces"]
    assert "20 records could not be read. The causes are those of the last 9." in page.text
    rows = [row for row in page.table("Dead letters") if row[0] == "clicks-0"]
    assert len(rows) == 6
    assert rows[0][:3] == ["clicks-0", "0", "ValueError: column 'id' is 0, not int"]
    assert rows[0][3] == "x" * 199 + "… (100,000 bytes)"
    assert rows[-1][3] == "(no value)"
    assert value_shown(b"\xff<") == "\\xff<"


def test_a_cause_for_each_letter_does_not_fill_the_page() -> None:
    letters = LetterCauses()
    for number in range(MOST_CAUSES + 30):
        letters.add(letter(f"strange{number}"))
    assert len(letters.causes) == MOST_CAUSES + 1
    assert (letters.causes[OTHERS].count, letters.count) == (30, MOST_CAUSES + 30)


def test_only_letters_of_the_run_count() -> None:
    summary = summed([batch(0)])
    found = [("shop", letter("a", 99)), ("other", letter("b", 5)), ("shop", letter("c", 100)), ("shop", letter("d", 3))]
    assert [each.cause for each in letters_of_run(found, summary)] == ["a", "d"]
    assert letters_of_run([("shop", letter("a", 5, topic="orders"))], summary) == []
    summary.pipeline = "shop.backfill-20261101to20261102"
    assert [each.cause for each in letters_of_run(found, summary)] == ["a", "d"]


def test_dead_letters_that_cannot_be_read_are_a_line_of_the_report(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_causes, "LONGEST_S", 0.2)
    summary = summed([batch(0)])
    letters = find_causes(pipeline, summary)
    assert letters.problem
    assert "could not be read to its end" in Page(report_html(summary, pipeline, letters)).text


def test_a_report_is_written_however_the_run_ends(pipeline: Pipeline, tmp_path: Path) -> None:
    target, stop = tmp_path / "state" / "report.html", StopRequest()
    with pytest.raises(ValueError, match="bad luck"), write_report(pipeline, target, stop):
        raise ValueError("bad luck")
    assert "Failed before the first batch was done: bad luck" in Page(target.read_text()).text
    with pytest.raises(KeyboardInterrupt), write_report(pipeline, target, stop):
        raise KeyboardInterrupt
    assert "Stopped on request" in Page(target.read_text()).text
    with write_report(pipeline, target, stop):
        pass
    assert "Finished" in Page(target.read_text()).text
    stop.set()
    with write_report(pipeline, target, stop):
        pass
    assert "Stopped on request" in Page(target.read_text()).text


def test_a_report_that_cannot_be_written_does_not_fail_the_run(
    pipeline: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with write_report(pipeline, tmp_path / "file" / "report.html", StopRequest()):
        pass
    assert "cannot write the report" in capsys.readouterr().err
