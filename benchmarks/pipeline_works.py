"""The works by which pipelines and the data source are compared with hand-written Spark, and the goals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.report import Figure
from benchmarks.values import AVRO, SMALL, WIDE, Values, unsure

QUICK_RECORDS = 60_000
PIPELINE = """
name: benchmark-${{JOB}}
cluster: {{bootstrap_servers: "{address}"}}
mode: batch
sources:
  - name: clicks
    topics: ["{topic}"]
    format: {format}
    schema: {schema}
{transforms}
sinks:
  - name: sink
    from: {view}
{sink}
"""
LAKE = """
    kind: lake
    path: ${PLACE}/lake
    time: at
"""
TABLE = """
    kind: database
    url: "{url}"
    table: "by_pipeline_${{JOB}}"
    mode: upsert
    key: [id]
    create: true
"""


class Work(NamedTuple):
    """Topic to lake, unless there is a `database` or a `query`. Goals say how many times faster ours has to be."""

    name: str
    title: str
    records: int
    values: Values
    job_goal: float | None = None
    command_goal: float | None = None
    sql: str | None = None
    database: str | None = None
    """The server whose table gets the rows."""
    staging_goal: float | None = None
    query: str | None = None
    """A statement whose result is wanted, instead of rows; ours reads its `columns` by the data source."""
    columns: str = ""
    peers: Sequence[str] = ()
    """Other decoders by hand, which are measured as well."""

    @property
    def topic(self) -> str:
        return f"{self.values.name}-{self.records}"


def pipeline_text(work: Work, address: str, database: str | None = None) -> str:
    """The file of a pipeline, with ${PLACE} and ${JOB} to be filled in; `database` is a URL."""
    transforms = "" if work.sql is None else f'transforms:\n  - {{name: chosen, sql: "{work.sql}"}}'
    return PIPELINE.format(
        address=address, topic=work.topic, format=work.values.format, schema=json.dumps(work.values.schema),
        transforms=transforms, view="clicks" if work.sql is None else "chosen",
        sink=LAKE if database is None else TABLE.format(url=database),
    )  # fmt: skip


WORKS = (
    Work("small", "JSON of 75 B", 5_000_000, SMALL, job_goal=4, command_goal=2.5),
    Work("wide", "JSON of 1 KB, nested", 1_000_000, WIDE, job_goal=2.5),
    Work("avro", "Avro of 84 B", 3_000_000, AVRO, job_goal=2, peers=("pyruhvro", "fastavro")),
    Work(
        "sql", "JSON of 75 B through SQL", 5_000_000, SMALL, job_goal=1.8,
        sql="SELECT id, upper(user) AS user, amount * 2 AS twice, at FROM clicks WHERE amount > 50",
    ),
    Work("mariadb", "JSON of 75 B into MariaDB", 1_000_000, SMALL, 1.3, database="mariadb", staging_goal=2),
    Work("postgresql", "JSON of 75 B into PostgreSQL", 1_000_000, SMALL, 1.3, database="postgresql", staging_goal=2),
    Work(
        "decoded-count", "decoded source: count of a field", 5_000_000, SMALL, job_goal=2.5,
        query="SELECT count(amount) AS amounts FROM clicks", columns="amount",
    ),
    Work(
        "decoded-group", "decoded source: groups", 5_000_000, SMALL, job_goal=2.5,
        query="SELECT user, count(*) AS clicks, max(amount) AS most FROM clicks GROUP BY user", columns="user,amount",
    ),
    *(Work(f"unsure-{share}", f"JSON of 75 B, {share} % unsure", 1_000_000, unsure(share)) for share in (0, 1, 100)),
)  # fmt: skip


def figures(works: Sequence[Work]) -> Iterator[Figure]:
    for work in works:
        name, title = work.name, work.title
        yield Figure(f"{name}-command", f"{title}: whole command", "s", False, _below(work.command_goal))
        yield Figure(f"{name}-cold", f"{title}: job, cold", "s", False, None)
        yield Figure(f"{name}-warm", f"{title}: job, warm", "s", False, _below(work.job_goal))
        if work.database is not None:
            yield Figure(f"{name}-staged", f"{title}: staging, warm", "s", False, _below(work.staging_goal))
        for peer in work.peers:
            yield Figure(f"{name}-{peer}", f"{title}: job, warm, by hand with {peer}", "s", False, None)
        yield Figure(f"{name}-cpu", f"{title}: CPU, whole command", "s/M records", False, None)
        yield Figure(f"{name}-memory", f"{title}: most memory held", "MB", False, None)


def _below(times_faster: float | None) -> float | None:
    return None if times_faster is None else 1 / times_faster
