"""One Spark session and one broker for all tests of the data source: a test keeps to topics of its own names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.sync import Admin, Producer
from tests import peers
from tests.peers import (
    DELTA_JARS,
    ROOT,
    SPARK_CONNECTOR_JARS,
    BarnabasServer,
    Broker,
    KafkaServer,
    MariaDbServer,
    PostgresServer,
    java,
)
from tests.spark import warm_daemon
from tests.spark.quick import QUICK_DRIVER_JVM, QUICK_SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
PATIENCE_S = 400
"""Beside other tests, a machine takes long to run many small jobs."""
PEERS = [str(jar) for directory in (SPARK_CONNECTOR_JARS, DELTA_JARS) for jar in directory.glob("*.jar")]
SETTINGS = {
    **QUICK_SPARK,
    "spark.jars": ",".join(PEERS),
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.daemon.module": warm_daemon.__name__,
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""What Delta asks for, where its jars are."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Has found `format("barnabas")` by itself; its temporary files and tables go with the tests'."""
    java()
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]").appName("barnabas-tests")
    for name, value in {**SETTINGS, **(DELTA if any(DELTA_JARS.glob("*.jar")) else {})}.items():
        builder = builder.config(name, value)
    builder = (
        builder.config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={scratch} {QUICK_DRIVER_JVM}")
    )
    with pytest.MonkeyPatch.context() as patch:  # Java hands it on to the Python processes, which need `tests`
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests() -> Iterator[None]:
    """Pipelines that are run as commands keep Spark's classes among the things that tests have installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(ROOT / ".peers" / "cache"))
        yield


@pytest.fixture(autouse=True)
def session_stays_active(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where another session is the active one, Spark does not find what later tests register in theirs."""
    session: Any = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    yield
    if session is not None:
        assert session.getActiveSession()._jsparkSession.equals(session._jsparkSession)


@pytest.fixture(scope="session")
def spark_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Keeps records of any age: tests send some of long ago, and may take longer than retention waits to look."""
    with BarnabasServer(tmp_path_factory.mktemp("spark-broker") / "data", {"log.retention.ms": "-1"}) as server:
        yield server


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with KafkaServer(
        tmp_path_factory.mktemp("spark-kafka") / "kafka", jvm=(*peers.QUICK_JVM[:-1], "-Xmx512m")
    ) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    """One server for all tests, which drop the tables that they need empty."""
    with MariaDbServer(tmp_path_factory.mktemp("mariadb") / "data") as server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    """One server for all tests, as with MariaDB."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def spark_topic(spark_broker: Broker, topic_name: str) -> Callable[..., str]:
    """Makes topics of names that no other test uses: `spark_topic(partitions=2)`."""
    made: list[str] = []

    def create(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"{topic_name}-{len(made)}"
        made.append(name)
        with Admin(spark_broker.address) as admin:
            admin.topics.create(name, partitions=partitions, configs=config or {})
        return name

    return create


@pytest.fixture(scope="session")
def spark_producer(spark_broker: Broker) -> Iterator[Producer]:
    with Producer(spark_broker.address) as producer:
        yield producer


@pytest.fixture
def read_topic(spark: SparkSession, spark_broker: Broker) -> Callable[..., DataFrame]:
    """A batch read of a topic: `read_topic(topic, columns="value")`."""

    def read(topic: str | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", spark_broker.address)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        return reader.options(**options).load()

    return read


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
