"""A lake's directory on HDFS as tasks reach it: with hdfs-native, a client that needs no JVM.

Name nodes, user, replication and the like are what Hadoop's own client would take in the driver, so that it makes no
difference which of the two has written a file.
"""

from __future__ import annotations

import functools
import getpass
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.filesystem import HadoopFileSystem, explained
from barnabas.spark.lake.task_files import WrittenBySpark

if TYPE_CHECKING:
    import hdfs_native
    import pyarrow

_DEFAULT_PORT = 8020
_AUTHENTICATION = "hadoop.security.authentication"
_NAME_NODES = "dfs.ha.namenodes."
_SETTINGS = (_AUTHENTICATION, "dfs.client.use.datanode.hostname")
_PREFIXES = (
    _NAME_NODES,
    "dfs.namenode.rpc-address.",
    "dfs.client.failover.",
    "dfs.client.block.write.replace-datanode-on-failure.",
)
"""The settings of Hadoop that hdfs-native knows."""
_USER = "HADOOP_USER_NAME"
_REMOTE = re.compile(r'RPCError\("(?:[\w$]+\.)*([\w$]+)", "(.*)')
"""How hdfs-native shows an error of the name node: the class, and what it says."""


@dataclass(frozen=True, slots=True)
class HdfsTaskFiles:
    url: str
    """Of the name node, or of the name service."""
    root: str
    settings: tuple[tuple[str, str], ...]
    user: str
    replication: int
    block_bytes: int
    permission: int

    def create(self, path: str) -> pyarrow.NativeFile:
        import pyarrow
        from hdfs_native import WriteOptions

        options = WriteOptions(self.block_bytes, self.replication, self.permission)
        with _explained(f"write {self.url}{path}"):
            return pyarrow.PythonFile(_NewFile(self._client().create(path, options), f"{self.url}{path}"), mode="w")

    def open(self, path: str) -> pyarrow.NativeFile:
        import pyarrow

        with _explained(f"read {self.url}{path}"):
            return pyarrow.PythonFile(self._client().read(path), mode="r")

    def _client(self) -> hdfs_native.Client:
        return _client(self.url, self.settings, self.user)


class _NewFile:
    """What Arrow asks of a file that it writes; hdfs-native's own does not say when it is closed."""

    def __init__(self, file: hdfs_native.FileWriter, path: str) -> None:
        self._file = file
        self._path = path
        self.closed = False

    def write(self, data: bytes) -> int:
        with _explained(f"write {self._path}"):
            return self._file.write(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _explained(f"write {self._path}"):
                self._file.close()


def hdfs_files(fs: HadoopFileSystem) -> HdfsTaskFiles | WrittenBySpark:
    try:
        import hdfs_native  # noqa: F401
    except ImportError as problem:
        return WrittenBySpark(f"tasks need hdfs-native to write to HDFS (pip install 'barnabas[hdfs]'): {problem}")
    with explained(f"look at {fs.root}"):
        settings = _settings(fs)
        if (authentication := settings.get(_AUTHENTICATION, "simple")) != "simple":
            return WrittenBySpark(f"tasks have no ticket for HDFS, whose {_AUTHENTICATION} is {authentication}")
        status = _nearest(fs)
        if status.isEncrypted() or status.isErasureCoded():
            kind = "encrypted" if status.isEncrypted() else "erasure-coded"
            return WrittenBySpark(f"{status.getPath().toString()} is {kind}, and its files are written by Spark")
        user = fs.jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
        umask = fs.jvm.org.apache.hadoop.fs.permission.FsPermission.getUMask(fs.java.getConf()).toShort()
        return HdfsTaskFiles(
            url=_url(fs, settings),
            root=str(fs.java_root.toUri().getPath()),
            settings=tuple(sorted(settings.items())),
            user=str(user),
            replication=int(fs.java.getDefaultReplication(fs.java_root)),
            block_bytes=int(fs.java.getDefaultBlockSize(fs.java_root)),
            permission=0o666 & ~int(umask),
        )


def _settings(fs: HadoopFileSystem) -> dict[str, str]:
    conf = fs.java.getConf()
    found = {name: conf.get(name) for name in _SETTINGS}
    for prefix in _PREFIXES:
        found |= {f"{prefix}{name}": value for name, value in conf.getPropsWithPrefix(prefix).items()}
    # Hadoop ignores spaces in a list, hdfs-native does not.
    return {name: "".join(value.split()) for name, value in found.items() if value is not None}


def _url(fs: HadoopFileSystem, settings: Mapping[str, str]) -> str:
    """hdfs-native knows of no default port."""
    uri = fs.java.getUri()
    is_address = uri.getPort() < 0 and f"{_NAME_NODES}{uri.getHost()}" not in settings
    return f"{uri.toString()}:{_DEFAULT_PORT}" if is_address else str(uri.toString())


def _nearest(fs: HadoopFileSystem) -> Any:
    """The status of the lake's directory, or of the one that it is going to be in."""
    place = fs.java_root
    while not fs.java.exists(place):
        place = place.getParent()
    return fs.java.getFileStatus(place)


@functools.cache
def _client(url: str, settings: tuple[tuple[str, str], ...], user: str) -> hdfs_native.Client:
    """One for each process: it has threads and connections of its own, and may be used by many tasks."""
    from hdfs_native import Client

    if user != os.environ.get(_USER, getpass.getuser()):
        os.environ[_USER] = user  # hdfs-native reads it for each connection, and has no option for it
    return Client(url, dict(settings))


@contextmanager
def _explained(action: str) -> Iterator[None]:
    """Errors in one line; those of the name node have the stack of its JVM behind them."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        said = str(error).replace("\\n", "\n").partition("\n")[0]
        remote = _REMOTE.match(said)
        raise LakeError(f"cannot {action}: {f'{remote[1]}: {remote[2]}' if remote else said}") from error
