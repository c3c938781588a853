"""Which views make rows of different batches meet, and what a pipeline does about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark.pipeline.across import marked, meetings, one_load_only
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.runner import own_session
from tests.peers import Broker
from tests.spark.pipelines import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE = [
    "SELECT upper(user) FROM clicks WHERE page = '/' ORDER BY at",
    "SELECT user, explode(array(1, 2)) FROM clicks",
    "SELECT * FROM clicks JOIN users USING (user)",
    "SELECT * FROM clicks LEFT JOIN users USING (user)",
    "SELECT * FROM users RIGHT JOIN clicks USING (user)",
    "SELECT * FROM clicks LEFT ANTI JOIN users USING (user)",
    "SELECT * FROM clicks WHERE user IN (SELECT user FROM users)",
    "SELECT * FROM clicks JOIN (SELECT user, count(*) FROM users GROUP BY user) USING (user)",
    "WITH known AS (SELECT * FROM users) SELECT * FROM clicks JOIN known USING (user)",
    "SELECT user FROM clicks UNION ALL SELECT user FROM buys",
]
WITH_STATE = [
    "SELECT a.page, b.page FROM clicks a JOIN clicks b ON a.user = b.user",
    "SELECT * FROM clicks JOIN buys USING (user)",
    "WITH some AS (SELECT * FROM clicks) SELECT a.page, b.page FROM some a JOIN some b ON a.user = b.user",
    "SELECT user, count(*) FROM clicks GROUP BY user",
    "SELECT DISTINCT user FROM clicks",
    "SELECT user FROM clicks UNION SELECT user FROM buys",
    "SELECT users.*, (SELECT max(at) FROM clicks) FROM users",
]
IN_ONE_LOAD = {
    **{
        f"SELECT * FROM {join} USING (user)": "a join that depends on which rows of a table are met"
        for join in (
            "users LEFT JOIN clicks",
            "users LEFT SEMI JOIN clicks",
            "users LEFT ANTI JOIN clicks",
            "clicks RIGHT JOIN users",
            "clicks FULL JOIN users",
        )
    },
    "SELECT * FROM clicks LIMIT 3": "LIMIT",
    "SELECT * FROM clicks OFFSET 3": "OFFSET",
    "SELECT user FROM clicks INTERSECT SELECT user FROM users": "INTERSECT",
    "SELECT user FROM clicks EXCEPT ALL SELECT user FROM users": "EXCEPT",
    "SELECT *, row_number() OVER (PARTITION BY user ORDER BY at) FROM clicks": "OVER (...)",
    "SELECT * FROM clicks WHERE user IN (SELECT user FROM clicks WHERE page = '/')": "a subquery over a stream",
    "SELECT * FROM clicks, LATERAL (SELECT 1 FROM buys WHERE buys.user = clicks.user)": "a subquery over a stream",
}


@pytest.fixture
def bench(spark: SparkSession, spark_broker: Broker, tmp_path: Path) -> Bench:
    return Bench(spark, spark_broker.address, tmp_path)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_rows_meet_where_two_ways_from_the_streams_come_together(spark: SparkSession) -> None:
    with own_session(spark) as own:
        clicks = marked(own.createDataFrame([], "user string, at timestamp, page string"))
        buys = marked(own.createDataFrame([], "user string, at timestamp"))
        users = own.createDataFrame([], "user string, name string")
        for name, frame in {"clicks": clicks, "buys": buys, "users": users}.items():
            frame.createOrReplaceTempView(name)
        assert [statement for statement in ALONE if meetings(own.sql(statement))] == []
        met = {statement: meetings(own.sql(statement)) for statement in [*WITH_STATE, *IN_ONE_LOAD]}
        assert [statement for statement, nodes in met.items() if not nodes] == []
        assert [statement for statement in WITH_STATE if one_load_only(met[statement])] == []
        assert {statement: one_load_only(met[statement]) for statement in IN_ONE_LOAD} == IN_ONE_LOAD

        def first(one: Any, other: Any) -> Any:
            return one

        grouped = clicks.groupBy("user")
        assert one_load_only(meetings(grouped.applyInArrow(first, "user string"))) == "applyInArrow"
        both = grouped.cogroup(users.groupBy("user")).applyInArrow(first, "user string")
        assert one_load_only(meetings(both)) == "cogroup"
        assert meetings(clicks.dropDuplicates(["user"])) == {"Deduplicate"}


PAIRS = """
name: pairs
cluster: {bootstrap_servers: "${BARNABAS_BOOTSTRAP_SERVER}"}
mode: ${MODE}
max_records_per_task: 1
sources:
  - name: clicks
    topics: ["${TOPIC}"]
    schema: id INT NOT NULL
transforms:
  - name: pairs
    sql: ${SQL:-SELECT a.id AS one, b.id AS two, a._timestamp FROM clicks a JOIN clicks b ON a.id < b.id}
  - name: copies
    sql: SELECT * FROM pairs
sinks:
  - {name: lake, kind: lake, from: copies, path: "${PIPELINE_DATA}/lake"}
"""


def test_a_stream_joined_with_itself_is_not_cut(bench: Bench, spark_topic: Callable[..., str]) -> None:
    topic = spark_topic()
    bench.send(topic, [{"id": number} for number in range(3)])
    with pytest.raises(PipelineError, match="view 'copies' groups or joins rows of several batches"):
        bench.run(PAIRS, TOPIC=topic, MODE="available-now")
    with pytest.raises(PipelineError, match="sink 'lake': view 'pairs' has LIMIT, which needs all rows at once"):
        bench.run(PAIRS, TOPIC=topic, MODE="available-now", SQL="SELECT * FROM clicks LIMIT 2")
    assert bench.run(PAIRS, TOPIC=topic, MODE="batch").rows == {"lake": 3}
    found = bench.spark.read.parquet(str(bench.place / "lake")).select("one", "two").collect()
    assert sorted(map(tuple, found)) == [(0, 1), (0, 2), (1, 2)]
