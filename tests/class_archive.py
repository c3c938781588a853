"""Make the archive of Kafka's classes that the JVMs of tests start with: `python -m tests.class_archive`.

What a broker and its tools load is listed by a run of each, and put into the archive in the form that it has in a JVM's
memory, so that no JVM has to find it in a hundred jars, to parse and to verify it again. An archive that fits is kept.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.peers import CLASS_ARCHIVE, KAFKA_JARS, QUICK_JVM, KafkaServer, java, kafka_jars, tool_runner

TOPIC = ("--topic", "topic")
READ = (*TOPIC, "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000")
TOOLS = (
    ("TopicCommand", "--create", *TOPIC),
    ("TopicCommand", "--describe"),
    ("ConsoleProducer", *TOPIC),
    ("consumer.ConsoleConsumer", *READ),
    ("consumer.ConsoleConsumer", *READ, "--command-property", "group.protocol=consumer"),
    ("consumer.group.ConsumerGroupCommand", "--describe", "--all-groups"),
    ("TransactionsCommand", "list"),
)


def fits(archive: Path) -> bool:
    """Whether a JVM that must use it starts: one of another version, or of other jars, does not."""
    command = [java(), *QUICK_JVM, "-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-cp", f"{KAFKA_JARS}/*"]
    return archive.exists() and subprocess.run([*command, "-version"], capture_output=True, check=False).returncode == 0


def loaded_classes(directory: Path) -> list[str]:
    """What a broker, its clients and the tools load."""
    server, tools = directory / "server.classes", directory / "tools.classes"
    with KafkaServer(directory / "kafka", jvm=(*QUICK_JVM, f"-XX:DumpLoadedClassList={server}")) as kafka:
        runner = tool_runner(jvm=(*QUICK_JVM, f"-XX:DumpLoadedClassList={tools}"))
        for name, *arguments in TOOLS:
            words = [f"org.apache.kafka.tools.{name}", "--bootstrap-server", kafka.address, *arguments]
            returncode, printed = runner.run(words, "a line\n", timeout=60)
            assert returncode == 0, printed
        runner.close()
    return sorted(set(server.read_text().splitlines()) | set(tools.read_text().splitlines()))


def make(archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        classes, partial = Path(scratch) / "classes", Path(scratch) / "archive"
        classes.write_text("\n".join(loaded_classes(Path(scratch))))
        options = [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={partial}", "-Xlog:disable"]
        subprocess.run([java(), "-Xshare:dump", *options, "-cp", f"{kafka_jars()}/*"], check=True, timeout=300)
        partial.rename(archive)


if __name__ == "__main__" and not fits(CLASS_ARCHIVE):
    make(CLASS_ARCHIVE)
