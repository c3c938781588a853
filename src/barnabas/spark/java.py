"""The Java that Spark runs on: found as Spark's own scripts find it, before one of them fails in words of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
"""The first Java that Spark 4 runs on."""
_REMEDY = (
    f"Spark needs Java {OLDEST} or later: `make setup` installs it where there is apt; elsewhere install a Java "
    "runtime (Debian: openjdk-17-jre-headless), and set JAVA_HOME or the PATH"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissing(OSError):
    """There is no Java that can run Spark."""


@dataclass(frozen=True, slots=True)
class Java:
    path: Path
    version: str
    """All that `java -version` prints."""


def require_java() -> Java:
    """The Java that Spark will start; an error that says what to do where it cannot run Spark."""
    path = _find()
    printed = _printed_version(path)
    number = _VERSION.search(printed)
    if number is None:
        raise JavaMissing(f"{path} -version does not tell a version: {printed!r}. {_REMEDY}")
    if int(number[1]) < OLDEST:
        raise JavaMissing(f"{path} is Java {number[1]}. {_REMEDY}")
    return Java(path, printed)


def _find() -> Path:
    home = os.environ.get("JAVA_HOME")
    if not home:
        found = shutil.which("java")
        if found is None:
            raise JavaMissing(f"there is no java on the PATH. {_REMEDY}")
        return Path(found)
    java = Path(home) / "bin" / "java"
    if not os.access(java, os.X_OK):
        raise JavaMissing(f"JAVA_HOME is {home}, but there is no {java}. {_REMEDY}")
    return java


def _printed_version(java: Path) -> str:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        raise JavaMissing(f"{java} -version does not end. {_REMEDY}") from None
    return done.stderr.strip()
