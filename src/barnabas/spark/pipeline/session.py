"""The Spark session of a pipeline: `local[*,4]` unless a master is named, with its log in a file."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.spark import worker_daemon, worker_python
from barnabas.spark.class_archive import ClassArchive
from barnabas.spark.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*,4]"
"""Plain `local[*]` never tries a failed task again."""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": worker_daemon.__name__,
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_NEVER_OPTIMIZING = ("-XX:TieredStopAtLevel=1",)
"""Half of a JVM's time in its first seconds goes into optimizing code, which pays only where rows pass through it."""
_OPTIMIZING_LATE = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=800000",
)
"""Twenty times Java's own numbers: what is worth it are the loops over rows, not all that starts and plans a job."""
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.append = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


@contextmanager
def spark_session(
    name: str,
    master: str | None,
    settings: Mapping[str, str],
    state: Path,
    *,
    is_direct: bool = False,
    class_options: Sequence[str] | None = None,
) -> Iterator[SparkSession]:
    """A session for one pipeline, stopped at the end; Spark's own log goes to `spark.log` in the state directory.

    `is_direct` says that no rows are expected in the JVM. `class_options` of the JVM stand for those by which it starts
    from the archive of its classes.
    """
    java = require_java()
    # Spark says so whenever it looks for pandas; nothing here is made with pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark.sql import SparkSession

    os.environ.setdefault(worker_python.VARIABLE, sys.executable)
    state.mkdir(parents=True, exist_ok=True)
    log_settings = state / "spark-log.properties"
    log_settings.write_text(_LOGGING.format(file=state / "spark.log"))
    if class_options is None:
        class_options = ClassArchive.of(java.version).options
    java_options = [f"-Dlog4j2.configurationFile={log_settings.as_uri()}", *class_options]
    java_options += _NEVER_OPTIMIZING if is_direct else _OPTIMIZING_LATE
    java_options += [settings[_JAVA_OPTIONS]] if _JAVA_OPTIONS in settings else []
    builder = SparkSession.builder.master(master or DEFAULT_MASTER).appName(f"barnabas pipeline {name}")
    for key, value in {**_SETTINGS, **settings, _JAVA_OPTIONS: " ".join(java_options)}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
