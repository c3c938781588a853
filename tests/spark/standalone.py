"""A standalone Spark cluster on the loopback: a master and its workers, each a process of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.peers import HOST, Server, free_port, java
from tests.spark.quick import QUICK_JVM

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class SparkDaemon(Server):
    """The master, or a worker, which ends its executors when it is stopped."""

    def __init__(self, directory: Path, name: str, main_class: str, *arguments: str) -> None:
        import pyspark

        java()
        home = Path(pyspark.__file__).parent
        log = directory / f"{name}.log"
        environment = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(directory / f"{name}-scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JVM} -Dspark.master.rest.enabled=false",
        }
        command = [str(home / "bin" / "spark-class"), main_class, "--host", HOST, "--webui-port", "0", *arguments]
        super().__init__(command, log, log, environment)

    def wait_for(self, line: bytes) -> None:
        self.wait_until(lambda: line in self.log.read_bytes(), timeout=180)


class StandaloneCluster:
    """`url` is its master's; each worker has a core, and its executors work in `directory`/worker-N."""

    def __init__(self, directory: Path, workers: int) -> None:
        port = str(free_port())
        self.url = f"spark://{HOST}:{port}"
        self.worker_directories = [directory / f"worker-{number}" for number in range(workers)]
        self._running = ExitStack()
        with ExitStack() as starting:
            master = SparkDaemon(directory, "master", MASTER, "--port", port)
            starting.enter_context(master)
            master.wait_for(b"I have been elected leader")
            shares = ("--cores", "1", "--memory", "768m")
            daemons = [
                SparkDaemon(directory, place.name, WORKER, *shares, "--work-dir", str(place), self.url)
                for place in self.worker_directories
            ]
            for worker in daemons:
                starting.enter_context(worker)
            for worker in daemons:
                worker.wait_for(b"Successfully registered with master")
            self._running = starting.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
