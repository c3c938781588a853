"""The programs that judge Barnabas, and the servers that tests start.

A peer that is not installed skips the test that asks for it, with a reason that says what to install; where `CI=true`
it fails the test instead, because there every judge must be heard. Servers listen on free ports of the loopback, keep
their output in a file beside their data, are waited for with a bound, and are stopped by their process id.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn, Protocol, Self

import pytest

from tests.forked import ForkedProcess, can_fork
from tests.kafka_tool import ToolRunner

ROOT = Path(__file__).resolve().parent.parent
KAFKA_VERSION = "4.3.1"
KAFKA_JARS = ROOT / ".peers" / f"kafka-{KAFKA_VERSION}"
STREAMS_JARS = ROOT / ".peers" / f"kafka-streams-{KAFKA_VERSION}"
SPARK_CONNECTOR_JARS = ROOT / ".peers" / "spark-connector-4.2.0"
SPARK_AVRO_JARS = ROOT / ".peers" / "spark-avro-4.1.1"
DELTA_JARS = ROOT / ".peers" / "delta-4.2.0"
JDBC_JARS = ROOT / ".peers" / "jdbc-drivers"
KAFKAJS = ROOT / ".peers" / "kafkajs" / "node_modules"
GO = ROOT / ".peers" / "go"
JAVA_CLASSES = ROOT / ".peers" / "java-classes"
DEBIAN_JARS = Path("/usr/share/java")
HOST = "127.0.0.1"
_PORTS = range(10_000, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))

QUICK_JVM = (
    "-Xshare:auto",
    "-Xlog:disable",  # also what it has to say of an archive that it cannot use
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xmx256m",
)
CLASS_ARCHIVE = ROOT / ".peers" / "kafka-classes.jsa"
"""Kafka's classes as a JVM has them in memory; `make peers` makes it. A JVM that it does not fit goes without."""
KAFKA_JVM = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""The heap and the collector that Kafka's own start script chooses."""


def kafka_jars() -> Path:
    """The directory with the jars of Apache Kafka."""
    if not any(KAFKA_JARS.glob("kafka-tools-*.jar")):
        absent(f"Apache Kafka {KAFKA_VERSION}'s jars are not in {KAFKA_JARS}: run `make peers` (needs maven)")
    return KAFKA_JARS


def spark_connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector, for `spark.jars`."""
    return fetched_jars("Spark's Kafka connector", SPARK_CONNECTOR_JARS)


def spark_avro_jars() -> list[Path]:
    """The jar of Spark's own Avro functions, for `spark.jars`."""
    return fetched_jars("Spark's Avro library", SPARK_AVRO_JARS)


def delta_jars() -> list[Path]:
    """The jars of Delta Lake, for `spark.jars`."""
    return fetched_jars("Delta Lake", DELTA_JARS)


def jdbc_jars() -> list[Path]:
    """The JDBC drivers of PostgreSQL and MySQL, for `spark.jars`."""
    return fetched_jars("a JDBC driver", JDBC_JARS)


def fetched_jars(what: str, directory: Path) -> list[Path]:
    """The jars that `make peers` has put into a directory."""
    return sorted(directory.glob("*.jar")) or absent(f"{what} is not in {directory}: run `make peers` (needs maven)")


def java() -> str:
    return _program("java", "a Java runtime, version 17 or later (Debian: openjdk-17-jre-headless)")


def kcat() -> str:
    return _program("kcat", "kcat (Debian and Homebrew: kcat)")


def shell(name: str) -> str:
    return _program(name, f"{name} (Debian and Homebrew: {name})")


def zookeeper_jars() -> str:
    """The class path of Debian's ZooKeeper."""
    if not (DEBIAN_JARS / "zookeeper.jar").exists():
        absent(f"ZooKeeper is not in {DEBIAN_JARS}: run `make peers` or install Debian's zookeeper")
    return f"{DEBIAN_JARS}/zookeeper.jar{os.pathsep}{DEBIAN_JARS}/slf4j-simple.jar"  # the first names what it needs


def node_command(script: Path, *arguments: str) -> list[str]:
    """The command line that runs a program on KafkaJS."""
    node = _program("node", "Node.js (Debian and Homebrew: nodejs)")
    if not (KAFKAJS / "kafkajs").is_dir():
        absent(f"KafkaJS is not in {KAFKAJS}: run `make peers` (needs npm)")
    return ["env", f"NODE_PATH={KAFKAJS}", node, str(script), *arguments]


def go_build(source: Path, program: Path) -> Path:
    """Build a Go program from the modules that `make peers` has fetched."""
    go = _program("go", "Go (Debian: golang-go, Homebrew: go)")
    if not (GO / "modules").is_dir():
        absent(f"franz-go is not in {GO}: run `make peers` (needs Go)")
    offline = {"GOMODCACHE": str(GO / "modules"), "GOCACHE": str(GO / "cache"), "GOPROXY": "off"}
    command = [go, "build", "-trimpath", "-o", str(program), "."]
    subprocess.run(command, cwd=source, env=os.environ | offline, timeout=100, check=True)
    return program


def java_command(source: Path, *arguments: str) -> list[str]:
    """The command line that runs a Java program of ours on Kafka's clients and Streams."""
    if not any(STREAMS_JARS.glob("kafka-streams-*.jar")):
        absent(f"Kafka Streams {KAFKA_VERSION}'s jars are not in {STREAMS_JARS}: run `make peers` (needs maven)")
    also_jars = [str(jar) for jar in sorted(STREAMS_JARS.glob("*.jar")) if not (kafka_jars() / jar.name).exists()]
    return kafka_command(source.stem, *arguments, also=[*also_jars, str(java_classes(source))])


def java_classes(source: Path) -> Path:
    """The directory with the classes of a program: compiled once for each text of it, whoever asks."""
    class_path = f"{kafka_jars()}/*{os.pathsep}{STREAMS_JARS}/*"
    text = class_path.encode() + source.read_bytes()
    classes = JAVA_CLASSES / f"{source.stem}-{hashlib.sha256(text).hexdigest()[:16]}"
    if not classes.is_dir():
        javac = _program("javac", "a Java compiler, version 17 or later (Debian: openjdk-17-jdk-headless)")
        JAVA_CLASSES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=JAVA_CLASSES) as directory:
            partial = Path(directory) / "classes"
            subprocess.run([javac, "-d", str(partial), "-cp", class_path, str(source)], timeout=100, check=True)
            with contextlib.suppress(OSError):  # another process was first
                partial.rename(classes)
    return classes


def _program(name: str, what_to_install: str) -> str:
    if os.environ.get("BARNABAS_TEST_WITHOUT_PEERS"):
        pytest.fail(f"this test uses {name}: mark it with pytest.mark.peers")
    return shutil.which(name) or absent(f"{name} is not on the PATH: run `make peers` or install {what_to_install}")


def absent(reason: str) -> NoReturn:
    """Something that a test needs is not there."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def kafka_command(
    main_class: str, *arguments: str, jvm: Sequence[str] = QUICK_JVM, also: Sequence[str] = ()
) -> list[str]:
    """The command line that runs a class from Kafka's jars, and from what is `also` in the class path."""
    class_path = os.pathsep.join([f"{kafka_jars()}/*", *also])
    is_quick = QUICK_JVM[0] in jvm and CLASS_ARCHIVE.exists()
    archive = [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}"] if is_quick else []
    return [java(), *jvm, *archive, "-cp", class_path, main_class, *arguments]


def kafka_tool(main_class: str, *arguments: str, input: str = "", timeout: float = 60) -> str:
    """Run one of Kafka's tools to its end and give what it printed; a tool that fails, fails the test."""
    returncode, printed = _tool_runner().run([main_class, *arguments], input, timeout)
    assert returncode == 0, f"{main_class} {' '.join(arguments)} ended with {returncode}:\n{printed}"
    return printed


def tool_runner(jvm: Sequence[str] = QUICK_JVM) -> ToolRunner:
    """A JVM that runs Kafka's tools."""
    classes = java_classes(ROOT / "tests" / "ToolRunner.java")
    return ToolRunner(kafka_command("ToolRunner", jvm=jvm, also=[str(classes)]))


def _tool_runner() -> ToolRunner:
    """The one of this process."""
    runner = _runners.get(os.getpid())
    if runner is None or not runner.is_alive:
        runner = _runners[os.getpid()] = tool_runner()
    return runner


_runners: dict[int, ToolRunner] = {}


def free_port() -> int:
    """A port that nobody listens on, of those that the system gives to no connection by itself.

    Of the others any may be given to a stranger while a killed server's clients still ask there.
    """
    for port in random.SystemRandom().sample(_PORTS, 100):  # whatever a test has seeded
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise OSError(f"no free port among a hundred of {_PORTS}")


def answers_metadata(address: str, timeout: float = 1.0) -> bool:
    """Whether a Metadata request (version 1, no topics) is answered with at least one broker."""
    host, port = address.rsplit(":", 1)
    request = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection((host, int(port)), timeout) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = b""
            while len(answer) < 12:
                chunk = connection.recv(4096)
                if not chunk:
                    return False
                answer += chunk
    except OSError:
        return False
    return int.from_bytes(answer[8:12], "big") >= 1


class Server:
    """A server process: its output lands in `log`, and it ends with the `with` block at the latest."""

    def __init__(self, command: Sequence[str], stdout: Path, log: Path, environment: Mapping[str, str] | None = None):
        self.log = log
        self.spawned_at = time.monotonic()
        with stdout.open("ab") as out, log.open("ab") as err:
            self.process = self._start(command, out, err, {**os.environ, **(environment or {})})

    def _start(
        self, command: Sequence[str], out: BinaryIO, err: BinaryIO, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until(self, ready: Callable[[], object], timeout: float) -> None:
        """Poll until `ready` gives a true value; a dead process or the end of the time is an error with its log."""
        deadline = time.monotonic() + timeout
        while not ready():
            if self.process.poll() is not None:
                raise AssertionError(f"{self} ended with {self.process.returncode} before it was ready\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{self} was not ready within {timeout} s\n{self.tail()}")
            time.sleep(0.01)

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, timeout: float = 60) -> int:
        """Ask for a clean stop and give the exit code; kill what does not stop in time, and say so."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self} did not stop within {timeout} s of SIGTERM\n{self.tail()}") from None

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.process.pid} (log: {self.log})"


class KafkaServer(Server):
    """Apache Kafka as one node that is broker and controller, on a data directory of its own."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        jvm: Sequence[str] = KAFKA_JVM,
        port: int = 0,
    ):
        self.address = f"{HOST}:{port or free_port()}"
        self.data_dir = directory / "data"
        properties = directory / "server.properties"
        format_started = time.monotonic()
        if not properties.exists():
            directory.mkdir(parents=True, exist_ok=True)
            self._format(properties, settings or {})
        else:
            self.address = re.findall(r"^listeners=PLAINTEXT://([^,]+),", properties.read_text(), re.MULTILINE)[0]
        self.format_seconds = time.monotonic() - format_started
        log = directory / "kafka.log"
        super().__init__(kafka_command("kafka.Kafka", str(properties), jvm=jvm), log, log)
        self.wait_until(lambda: answers_metadata(self.address), timeout=60)

    def _format(self, properties: Path, settings: Mapping[str, str]) -> None:
        controller = f"{HOST}:{free_port()}"
        chosen = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **settings,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in chosen.items()))
        cluster_id = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        kafka_tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties))


class ZooKeeperServer(Server):
    """ZooKeeper alone, or one server of an ensemble, on a data directory that may hold what an earlier one left."""

    def __init__(
        self,
        directory: Path,
        *,
        host: str = HOST,
        port: int = 0,
        number: int = 1,
        ensemble: Sequence[str] = (),
        wrapper: Sequence[str] = (),
    ):
        """`ensemble` has a line for each server; one that waits for a majority is not waited for here.

        `wrapper` stands before the command, and becomes it.
        """
        port = port or free_port()
        self.address = f"{host}:{port}"
        settings = (
            "tickTime=500",
            "maxSessionTimeout=60000",  # instead of 20 ticks, which would cut what a test asks for
            "initLimit=20",
            "syncLimit=4",
            f"dataDir={directory}",
            f"clientPort={port}",
            f"clientPortAddress={host}",
            "admin.enableServer=false",
            *ensemble,
        )
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "myid").write_text(f"{number}\n")
        configuration = directory / "zoo.cfg"
        configuration.write_text("\n".join(settings))
        log = directory / "zookeeper.log"
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [*wrapper, java(), *QUICK_JVM, "-cp", zookeeper_jars(), main_class, str(configuration)]
        super().__init__(command, log, log)
        if not ensemble:
            self.wait_until(self.mode, timeout=30)

    def mode(self) -> str:
        """standalone, leader or follower; nothing while it does not serve."""
        host, port = self.address.split(":")
        try:
            with socket.create_connection((host, int(port)), 1) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return ""
        found = re.search(r"^Mode: (\w+)$", answer.decode(), re.MULTILINE)
        return found[1] if found else ""


class BarnabasServer(Server):
    """`barnabas up`, on a data directory that may hold what an earlier one left."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        port: int = 0,
        timeout: float = 60,
        wrapper: Sequence[str] = (),
        new_interpreter: bool = False,
    ):
        """`wrapper` stands before the command, and becomes it. A fork is as good as a `new_interpreter`, unless its
        start is measured."""
        self.data_dir = data_dir
        self._new_interpreter = new_interpreter
        stdout = data_dir.with_name(f"{data_dir.name}.stdout")
        stdout.parent.mkdir(parents=True, exist_ok=True)
        stdout.write_bytes(b"")
        command = barnabas_command("up", "--data-dir", str(data_dir), "--port", str(port or free_port()))
        choices = [part for key, value in (settings or {}).items() for part in ("--set", f"{key}={value}")]
        super().__init__(
            [*wrapper, *command, *choices, *arguments],
            stdout,
            data_dir.with_name(f"{data_dir.name}.log"),
            environment,
        )
        self.wait_until(lambda: _READY_LINE.search(stdout.read_text()), timeout)
        match = _READY_LINE.search(stdout.read_text())
        assert match is not None
        self.address = match[1]

    def _start(
        self, command: Sequence[str], out: BinaryIO, err: BinaryIO, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        """Without a new interpreter, if nothing depends on one."""
        beginning = barnabas_command()
        if self._new_interpreter or list(command[: len(beginning)]) != beginning or not can_fork(environment):
            return super()._start(command, out, err, environment)
        with open(os.devnull, "rb") as null:
            streams = (null.fileno(), out.fileno(), err.fileno())
            return ForkedProcess(command[len(beginning) :], streams, environment)


class MariaDbServer(Server):
    """MariaDB on a data directory of its own, with an empty database `shop`; root needs no password."""

    def __init__(self, directory: Path):
        packages, path = "mariadb-server-core and mariadb-client-core", f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
        install, server = (_database_program(name, packages, path) for name in ("mariadb-install-db", "mariadbd"))
        port = free_port()
        self.url = f"mysql://root@{HOST}:{port}/shop"
        directory.mkdir(parents=True, exist_ok=True)
        data, log = directory / "data", directory / "mariadb.log"
        common = ["--no-defaults", f"--datadir={data}", *(["--user=root"] if os.getuid() == 0 else [])]
        prepare = [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(prepare, check=True, timeout=60, stdout=subprocess.DEVNULL)
        (directory / "init.sql").write_text("CREATE DATABASE IF NOT EXISTS shop;\n")
        command = [server, *common, f"--socket={directory / 'socket'}", f"--port={port}", f"--bind-address={HOST}"]
        super().__init__([*command, f"--init-file={directory / 'init.sql'}"], log, log)
        self.wait_until(lambda: b"ready for connections" in log.read_bytes(), timeout=60)


class PostgresServer(Server):
    """PostgreSQL on a data directory of its own, with a database `shop`; it runs as its own user where this is root."""

    def __init__(self) -> None:
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        path = os.pathsep.join([os.environ["PATH"], *map(str, programs)])
        install, server = (_database_program(name, "postgresql", path) for name in ("initdb", "postgres"))
        port = free_port()
        self.url = f"postgresql://postgres@{HOST}:{port}/shop"
        # Not among pytest's directories, which no other user may enter.
        self._directory = Path(tempfile.mkdtemp(prefix="barnabas-postgres-"))
        data, log = self._directory / "data", self._directory / "postgres.log"
        become: list[str] = []
        if os.getuid() == 0:
            shutil.chown(self._directory, "postgres", "postgres")
            become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        prepare = [*become, install, "--auth=trust", "--username=postgres", "--no-sync", f"--pgdata={data}"]
        subprocess.run(prepare, check=True, timeout=60, stdout=subprocess.DEVNULL)
        create = [*become, server, "--single", "-D", str(data), "postgres"]
        subprocess.run(create, input=b"CREATE DATABASE shop;\n", check=True, timeout=60, capture_output=True)
        options = ("-p", str(port), "-h", HOST, "-k", str(self._directory))
        super().__init__([*become, server, "-D", str(data), *options], log, log)
        self.wait_until(lambda: b"ready to accept connections" in log.read_bytes(), timeout=60)

    def stop(self, timeout: float = 60) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # "fast": it does not wait until clients leave
        code = super().stop(timeout)
        shutil.rmtree(self._directory, ignore_errors=True)
        return code


def _database_program(name: str, packages: str, path: str) -> str:
    return shutil.which(name, path=path) or absent(f"{name} is missing: run `make peers` or install {packages}")


_READY_LINE = re.compile(r"^.*\bready\b.*?([\w.\[\]:]+:\d+).*\n", re.MULTILINE)


Broker = BarnabasServer | KafkaServer


class NewTopic(Protocol):
    """Creates a topic under a name that no other test uses, and gives the name."""

    def __call__(self, partitions: int = 1, config: dict[str, str] | None = None) -> str: ...


def eventually(question: Callable[[], object], expected: object, timeout: float = 60) -> None:
    """Ask until the answer is the expected one: Kafka's brokers learn of a change a moment after it was answered."""
    deadline = time.monotonic() + timeout
    while (answer := question()) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    assert answer == expected


def barnabas_command(*arguments: str) -> list[str]:
    """The command line of `barnabas` in the interpreter that runs the tests."""
    return [os.environ.get("BARNABAS_TEST_PYTHON", sys.executable), "-m", "barnabas.cli", *arguments]


def collect_sockets() -> None:
    """Close what kafka-python has left to the garbage collector, before it becomes the warning of some other test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
