"""The same lake on HDFS: written by tasks and by Spark, after writers that died, from two runs.

In `make proof` also with a driver that is killed, a data node that goes away, a directory full or closed.
"""

from __future__ import annotations

import functools
import getpass
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from barnabas.spark.direct import task
from barnabas.spark.direct.hour_files import HourFilesTarget
from barnabas.spark.lake.errors import LakeError, ManifestMoved
from barnabas.spark.lake.filesystem import HadoopFileSystem
from barnabas.spark.lake.hdfs_files import HdfsTaskFiles
from barnabas.spark.lake.load import load_topics
from barnabas.spark.lake.reading import read_lake
from barnabas.spark.lake.sink import LakeSettings, LakeSink
from barnabas.spark.lake.tasks import Task
from barnabas.spark.pipeline.sinks import Written
from barnabas.sync import Producer
from tests.peers import Broker, free_port
from tests.spark.hdfs import HdfsServer
from tests.spark.killing import OFFLINE, Victim, disturb
from tests.spark.lake_topic import BEGIN_MS, STEP_MS, Topic, every_offset, offsets_in
from tests.spark.landings import HdfsLake
from tests.spark.pipelines import Bench
from tests.spark.test_lake_direct import BY_SPARK, PIPELINE, WITH_ARROW, click

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 12


@pytest.fixture(scope="module")
def hdfs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    context: Any = spark.sparkContext
    for wait in ("retry.window.base", "block.write.locateFollowingBlock.initial.delay.ms"):
        context._jsc.hadoopConfiguration().set(f"dfs.client.{wait}", "200")
    place = tmp_path_factory.mktemp("hdfs")
    keys = f"jceks://file{place}/keys.jceks"
    _make_key(spark, keys)
    with HdfsServer(place / "nodes", {"hadoop.security.key.provider.path": keys}) as server:
        yield server


def _make_key(spark: SparkSession, keys: str) -> None:
    """The name node needs a key to have an encryption zone."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    conf = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    factory = jvm.org.apache.hadoop.crypto.key.KeyProviderFactory
    provider = factory.get(jvm.java.net.URI(keys), conf)
    provider.createKey("key", jvm.org.apache.hadoop.crypto.key.KeyProvider.options(conf))
    provider.flush()


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets settings of Hadoop for one test."""
    context: Any = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    before: dict[str, str | None] = {}

    def configure(name: str, value: str) -> None:
        before[name] = hadoop.get(name)
        hadoop.set(name, value)

    yield configure
    for name, value in before.items():
        if value is None:
            hadoop.unset(name)
        else:
            hadoop.set(name, value)


def copied(spark: SparkSession, path: str, place: Path) -> Path:
    """The data files of a lake as a reader sees them now, brought to a local directory by Hadoop's own client."""
    jvm: Any = spark._jvm
    fs: Any = HadoopFileSystem(spark, path).java
    for found in fs.globStatus(jvm.org.apache.hadoop.fs.Path(f"{path}/date=*/hour=*/*.parquet")) or ():
        target = place / "/".join(str(found.getPath()).rsplit("/", 3)[1:])
        fs.copyToLocalFile(False, found.getPath(), jvm.org.apache.hadoop.fs.Path(str(target)), True)
    return place


def new_sink(topic: Topic, path: str) -> LakeSink:
    return LakeSink("lake", LakeSettings(path), {}, topic.observe)


def rows_of_lake(spark: SparkSession, path: str) -> list[Any]:
    rows = read_lake(spark, path).drop("date", "hour").collect()
    return sorted(rows, key=lambda row: (row._partition, row._offset))


def test_a_lake_on_hdfs_is_the_same_on_both_paths(
    spark: SparkSession,
    spark_broker: Broker,
    spark_topic: Callable[..., str],
    hdfs: HdfsServer,
    settings: Callable[[str, str], None],
    tmp_path: Path,
) -> None:
    """The direct one finds its name node by the name of a service, and its path has to be taken literally."""
    address = hdfs.url.removeprefix("hdfs://")
    settings("dfs.nameservices", "lakes")
    settings("dfs.ha.namenodes.lakes", "first, second")
    settings("dfs.namenode.rpc-address.lakes.first", address)
    settings("dfs.namenode.rpc-address.lakes.second", f"127.0.0.1:{free_port()}")
    failover = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    settings("dfs.client.failover.proxy.provider.lakes", failover)
    settings("fs.permissions.umask-mode", "027")
    bench = Bench(spark, spark_broker.address, tmp_path)
    topic, random = spark_topic(partitions=2), Random(1)
    bench.send(topic, [click(number, random) for number in range(300)], key=b"k")
    found: dict[str, tuple[Any, ...]] = {}
    texts = {
        "direct": PIPELINE.replace("${PIPELINE_DATA}/${NAME}", "'hdfs://lakes/both/direct %41'"),
        "arrow": WITH_ARROW.replace("${PIPELINE_DATA}", f"{hdfs.url}/both"),
        "spark": BY_SPARK.replace("${PIPELINE_DATA}", f"{hdfs.url}/both"),
    }
    for name, text in texts.items():
        assert bench.run(text, TOPIC=topic, NAME=name).rows == {"lake": 300}
    for name, directory in {"direct": "direct %41", "arrow": "arrow", "spark": "spark"}.items():
        local = copied(spark, f"{hdfs.url}/both/{directory}", tmp_path / "copies" / name)
        files = [pyarrow.parquet.ParquetFile(path) for path in local.glob("**/*.parquet")]
        ids = sorted(id for file in files for id in file.read()["id"].to_pylist())
        assert ids == list(range(300)), name
        writers = {file.metadata.created_by.split()[0] for file in files}
        found[name] = rows_of_lake(spark, f"{hdfs.url}/both/{directory}"), writers, kinds(spark, hdfs, directory)
    assert found["direct"][0] == found["arrow"][0] == found["spark"][0]
    assert found["direct"][1] == found["arrow"][1] == {"parquet-cpp-arrow"}
    assert found["spark"][1] == {"parquet-mr"}
    assert found["direct"][2] == found["arrow"][2] == found["spark"][2], "files differ by who has written them"


def kinds(spark: SparkSession, hdfs: HdfsServer, lake: str) -> set[tuple[Any, ...]]:
    """What Hadoop says of the files of a lake, beside their names and sizes."""
    fs: Any = HadoopFileSystem(spark, hdfs.url).java
    jvm: Any = spark._jvm
    found = fs.globStatus(jvm.org.apache.hadoop.fs.Path(f"{hdfs.url}/both/{lake}/date=*/hour=*/*.parquet"))
    assert len(found) >= 3
    return {
        (str(one.getOwner()), str(one.getPermission().toString()), int(one.getReplication()), int(one.getBlockSize()))
        for one in found
    }


HALF_WRITTEN = """
import pickle, sys, time
files = pickle.loads(bytes.fromhex(sys.argv[1]))
out = files.create(sys.argv[2])
out.write(b"x" * 100_000)
print("written", flush=True)
time.sleep(600)
"""


def test_what_dead_writers_leave_on_hdfs_is_removed_and_never_committed(
    spark: SparkSession,
    spark_broker: Broker,
    spark_topic: Callable[..., str],
    hdfs: HdfsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One attempt writes on after the commit, and makes its staging directory again; another is killed in a file."""
    bench = Bench(spark, spark_broker.address, tmp_path)
    topic, random = spark_topic(), Random(6)
    bench.send(topic, [click(number, random) for number in range(100)])
    seen: list[task.Load] = []

    def in_tasks(load: task.Load) -> Any:
        seen.append(load)
        return task.in_tasks(load)

    monkeypatch.setattr("barnabas.spark.direct.job.in_tasks", in_tasks)
    text = PIPELINE.replace("${PIPELINE_DATA}", hdfs.url)
    bench.run(text, TOPIC=topic, NAME="dead", MODE="available-now")
    (load,) = [load for load in seen if load.target is not None]
    assert isinstance(load.target, HourFilesTarget)
    fs = HadoopFileSystem(spark, hdfs.url)
    staging = load.target.directory.lstrip("/")
    assert not fs.exists(staging)
    list(load.run(0, attempt=99))
    assert fs.exists(staging)
    half = f"{load.target.directory}/half"
    killed = subprocess.Popen(
        [sys.executable, "-c", HALF_WRITTEN, pickle.dumps(load.target.files).hex(), half],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"written\n"
        killed.kill()
    assert fs.exists(half.lstrip("/"))
    bench.send(topic, [click(number, random) for number in range(100, 150)])
    bench.run(text, TOPIC=topic, NAME="dead", MODE="available-now")
    assert sorted(row.id for row in rows_of_lake(spark, f"{hdfs.url}/dead")) == list(range(150))
    assert not fs.exists(staging)


def test_why_tasks_do_not_write_to_hdfs_is_said_in_one_line(
    spark: SparkSession, hdfs: HdfsServer, settings: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def reason(path: str) -> str | None:
        return new_sink(Topic(spark), f"{hdfs.url}{path}").direct_obstacle(spark, ())

    assert reason("/none/yet") is None
    jvm: Any = spark._jvm
    fs: Any = HadoopFileSystem(spark, hdfs.url).java
    striped = jvm.org.apache.hadoop.fs.Path("/striped")
    fs.mkdirs(striped)
    fs.setErasureCodingPolicy(striped, "RS-6-3-1024k")
    assert reason("/striped/lake") == f"{hdfs.url}/striped is erasure-coded, and its files are written by Spark"
    secret = jvm.org.apache.hadoop.fs.Path("/secret")
    fs.mkdirs(secret)
    fs.createEncryptionZone(secret, "key")
    assert reason("/secret/lake") == f"{hdfs.url}/secret is encrypted, and its files are written by Spark"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "hdfs_native", None)
        assert (reason("/none/yet") or "").startswith("tasks need hdfs-native to write to HDFS (pip install")
    settings("hadoop.security.authentication", "kerberos")
    assert reason("/none/yet") == "tasks have no ticket for HDFS, whose hadoop.security.authentication is kerberos"


def test_tasks_write_to_hdfs_as_the_user_of_the_driver(
    spark: SparkSession, hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody-else")
    fs = HadoopFileSystem(spark, hdfs.url)
    files = HdfsTaskFiles(hdfs.url, "/users", (), "alice", 1, 1 << 20, 0o640)
    with files.create("/users/hers") as file:
        file.write(b"x")
    jvm: Any = spark._jvm
    status: Any = fs.java.getFileStatus(jvm.org.apache.hadoop.fs.Path("/users/hers"))
    assert (status.getOwner(), status.getPermission().toString(), status.getBlockSize()) == (
        "alice",
        "rw-r-----",
        1 << 20,
    )


def test_what_the_name_node_refuses_a_task_is_said_in_one_line(hdfs: HdfsServer) -> None:
    files = HdfsTaskFiles(hdfs.url, "/refused", (), getpass.getuser(), 1, 1 << 20, 0o640)
    files.create("/refused/file").close()
    with pytest.raises(LakeError) as refused:
        files.create("/refused/file/below")
    said = "ParentNotDirectoryException: /refused/file (is not a directory)"
    assert str(refused.value) == f"cannot write {hdfs.url}/refused/file/below: {said}"


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_an_offline_load_to_hdfs_whose_driver_is_killed_goes_on_with_what_is_missing(
    spark: SparkSession, hdfs: HdfsServer, tmp_path: Path
) -> None:
    lake = functools.partial(HdfsLake, url=f"{hdfs.url}/killed", copy=functools.partial(copied, spark))
    report = disturb({"lake": lake}, [Victim.DRIVER], tmp_path, 7, way=OFFLINE)
    assert report.starts == 2


@pytest.mark.proof
def test_a_load_of_a_topic_goes_on_where_it_was_when_a_data_node_is_restarted_in_the_middle(
    spark: SparkSession,
    spark_topic: Callable[..., str],
    spark_producer: Producer,
    spark_broker: Broker,
    hdfs: HdfsServer,
) -> None:
    topic = spark_topic(partitions=2)
    for partition, offset in every_offset(RECORDS):
        value, time = b"%d of %d" % (offset, partition), BEGIN_MS + offset * STEP_MS
        spark_producer.post(topic, value, partition=partition, timestamp=time)
    spark_producer.flush()
    path = f"{hdfs.url}/lake"
    options = {"kafka.bootstrap.servers": spark_broker.address, "subscribe": topic}
    sink = LakeSink("lake", LakeSettings(path), options)
    restarts: list[Task] = []

    def restart_once(task: Task, written: Written) -> None:
        if not restarts:
            restarts.append(task)
            hdfs.restart_data_node()

    def rows_of(frame: DataFrame) -> Counter[tuple[int, int, bytes]]:
        return Counter((row._partition, row._offset, bytes(row.value)) for row in frame.collect())

    while True:
        try:
            load_topics(spark, sink, max_records=6, on_done=restart_once)
        except LakeError:  # a task that found no data node; the next run does only what is missing
            continue
        break
    assert len(restarts) == 1
    expected = Counter(
        (partition, offset, b"%d of %d" % (offset, partition)) for partition, offset in every_offset(RECORDS)
    )
    assert rows_of(spark.read.parquet(path)) == expected
    assert rows_of(read_lake(spark, path)) == expected
    assert sorted(sink.lake.state().files) == [
        f"date=2023-11-14/hour={hour}/{topic}-{partition}-{start:020}-{start + 6:020}.snappy.parquet"
        for hour, start in ((22, 0), (23, 6))
        for partition in (0, 1)
    ]
    assert all(row["ok"] for row in sink.audit(spark))
    done = sink.compact(spark)
    assert [(row["files_before"], row["files_after"], row["rows"]) for row in done] == [(2, 1, 12), (2, 1, 12)]
    assert rows_of(spark.read.parquet(path)) == expected


def test_a_run_on_another_machine_takes_the_lake_and_the_commit_of_the_first_is_refused(
    spark: SparkSession, hdfs: HdfsServer
) -> None:
    path = f"{hdfs.url}/shared"
    topic = Topic(spark)
    first, second = new_sink(topic, path), new_sink(topic, path)
    first.prepare(spark)
    first.write(topic.rows(0, 1), topic.batch(0, 1))
    second.prepare(spark)
    with pytest.raises(ManifestMoved, match=r"another run has opened hdfs://.*/shared since this one did"):
        first.write(topic.rows(1, 2), topic.batch(1, 2))
    second.write(topic.rows(1, 3), topic.batch(1, 3))
    assert offsets_in(spark.read.parquet(path)) == every_offset(3)

    # What the refusal stands on when both commit at the same moment: no rename takes the place of a file.
    jvm: Any = spark._jvm
    manifest = jvm.org.apache.hadoop.fs.Path(f"{path}/_manifest")
    context: Any = spark.sparkContext
    fs = manifest.getFileSystem(context._jsc.hadoopConfiguration())
    one, other, *_ = [status.getPath() for status in fs.listStatus(manifest)]
    assert not fs.rename(one, other)
    assert fs.exists(one)


@pytest.mark.proof
def test_a_directory_that_is_full_or_closed_for_writing_is_an_error_and_the_load_goes_on_later(
    spark: SparkSession, hdfs: HdfsServer
) -> None:
    path = f"{hdfs.url}/small"
    topic = Topic(spark)
    sink = new_sink(topic, path)
    sink.prepare(spark)
    sink.write(topic.rows(0, 3), topic.batch(0, 3))
    jvm: Any = spark._jvm
    where = jvm.org.apache.hadoop.fs.Path(path)
    context: Any = spark.sparkContext
    fs = where.getFileSystem(context._jsc.hadoopConfiguration())
    safe_mode = jvm.org.apache.hadoop.fs.SafeModeAction

    count = fs.getContentSummary(where)
    fs.setQuota(where, count.getFileCount() + count.getDirectoryCount(), -1)
    with pytest.raises(LakeError, match=r"cannot write hdfs://.*quota .* is exceeded"):
        sink.write(topic.rows(3, 6), topic.batch(3, 6))
    fs.setQuota(where, -1, -1)
    fs.setSafeMode(safe_mode.ENTER)
    try:
        with pytest.raises(LakeError, match=r"cannot write hdfs://.*Name node is in safe mode"):
            sink.write(topic.rows(3, 6), topic.batch(3, 6))
        assert offsets_in(spark.read.parquet(path)) == every_offset(3)
    finally:
        fs.setSafeMode(safe_mode.LEAVE)
    assert sink.write(topic.rows(3, 6), topic.batch(3, 6)).rows == 6
    assert offsets_in(spark.read.parquet(path)) == every_offset(6)
