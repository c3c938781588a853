"""The environment of the running Python as one file that Spark unpacks beside each executor (`spark.archives`).

Everything that is installed goes in, except what Spark brings along itself. The interpreter stays out, as in any
virtual environment: the archive has links to it, so the cluster's machines must have the same version of Python.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

SPARK_BRINGS = ("pyspark", "py4j")
_LEFT_OUT = {*SPARK_BRINGS, "pip"}
_SETTINGS = "pyvenv.cfg"
_GZIP_LEVEL = 1
"""The level that tools choose takes three times as long, for a tenth less."""


class CannotPack(Exception):
    """The environment would not work on another machine."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment: where it is, the folders of its packages, and the interpreter that it stands on."""

    prefix: Path
    packages: tuple[Path, ...]
    interpreter: PurePosixPath


def this_environment() -> Environment:
    prefix = Path(sys.prefix)
    if sys.prefix == sys.base_prefix:
        raise CannotPack(
            f"{prefix} is no virtual environment: make one (python3 -m venv), and install barnabas[spark] in it"
        )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    paths = sysconfig.get_paths()
    packages = tuple(dict.fromkeys(Path(paths[kind]) for kind in ("purelib", "platlib")))
    return Environment(prefix, packages, PurePosixPath(_home(prefix)) / f"python{version}")


def _home(prefix: Path) -> str:
    for line in (prefix / _SETTINGS).read_text().splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            return value.strip()
    raise CannotPack(f"{prefix / _SETTINGS} does not name its home")


@dataclass(frozen=True)
class Plan:
    """What goes into an archive: files by their names in it, and their size in all."""

    environment: Environment
    files: tuple[tuple[str, Path], ...]
    bytes: int


def plan(environment: Environment) -> Plan:
    """Find what to pack; refuse what would be missing on another machine."""
    _check(environment)
    files = tuple(sorted(_files(environment)))
    return Plan(environment, files, sum(file.stat().st_size for _, file in files))


def _check(environment: Environment) -> None:
    installed = {each.name: each for each in distributions(path=[str(path) for path in environment.packages])}
    if "barnabas" not in installed:
        raise CannotPack(f"barnabas is not installed in {environment.prefix}")
    editable = {name: source for name, each in installed.items() if (source := _editable_source(each)) is not None}
    if editable:
        told = ", ".join(f"{name} (from {source})" for name, source in sorted(editable.items()))
        raise CannotPack(
            f"installed in editable mode, so that the files are not in the environment: {told}; "
            "install what is to be packed from a wheel or with a plain `pip install`"
        )


def _editable_source(distribution: Distribution) -> str | None:
    """Where the files of an editable install are; None for one whose files are in the environment."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable", False):
        return None
    return str(origin["url"]).removeprefix("file://")


def _files(environment: Environment) -> Iterator[tuple[str, Path]]:
    for packages in environment.packages:
        for folder, folders, names in os.walk(packages):
            folders[:] = [name for name in folders if not _is_left_out(name)]
            for name in names:
                file = Path(folder, name)
                yield file.relative_to(environment.prefix).as_posix(), file


def _is_left_out(folder: str) -> bool:
    """Whether it is a package that stays out, or what tells of that package's installation."""
    package = folder.partition("-")[0] if folder.endswith(".dist-info") else folder
    return package in _LEFT_OUT


def pack(
    plan: Plan,
    target: Path,
    interpreter: PurePosixPath | None = None,
    on_progress: Callable[[int], object] = lambda done: None,
) -> int:
    """Write the archive and give its size; `interpreter` is where the cluster's machines have it, if not as here."""
    interpreter = interpreter or plan.environment.interpreter
    partial = target.with_name(f"{target.name}.partial")
    done = 0
    try:
        with (
            partial.open("wb") as file,
            gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w", dereference=True) as archive,
        ):
            _add_interpreter(archive, interpreter)
            for name, path in plan.files:
                archive.add(path, name, recursive=False, filter=_without_owner)
                done += path.stat().st_size
                on_progress(done)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    return target.stat().st_size


def _add_interpreter(archive: tarfile.TarFile, interpreter: PurePosixPath) -> None:
    """Links to the interpreter, and the file that makes it take this for a virtual environment."""
    settings = f"home = {interpreter.parent}\ninclude-system-site-packages = false\n".encode()
    entry = tarfile.TarInfo(_SETTINGS)
    entry.size = len(settings)
    archive.addfile(entry, io.BytesIO(settings))
    for name in dict.fromkeys(("python", "python3", interpreter.name)):
        link = tarfile.TarInfo(f"bin/{name}")
        link.type, link.linkname = tarfile.SYMTYPE, str(interpreter)
        archive.addfile(link)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Who packed it does not matter where it is unpacked."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
