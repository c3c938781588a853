"""A file system in memory that can stop working before, or in the middle of, any step that changes it, and where others
may do their work before any call."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.filesystem import Listed


class Crash(BaseException):
    """The driver is gone; nothing below may catch it."""


class ModelFiles:
    """Renames are atomic, writes and the deletion of a directory are not: each leaves a half if the crash is in it."""

    def __init__(self, root: str = "model:/lake") -> None:
        self.root = root
        self.files: dict[str, bytes] = {}
        self.steps = 0
        self.crash_at: int | None = None
        self.failure: LakeError | None = None
        """What is raised instead of a crash, as by a disk that is full or read-only."""
        self.calls = 0
        self.before_call: Callable[[], object] = lambda: None
        """Where others may do something in between."""

    def list(self, path: str) -> list[Listed]:
        self._call()
        prefix = f"{path}/" if path else ""
        found: dict[str, Listed] = {}
        for name, data in self.files.items():
            if name.startswith(prefix):
                first, *rest = name[len(prefix) :].split("/")
                found[first] = Listed(first, 0 if rest else len(data), bool(rest))
        return sorted(found.values(), key=lambda listed: listed.name)

    def exists(self, path: str) -> bool:
        self._call()
        return self._is_there(path)

    def _is_there(self, path: str) -> bool:
        return any(name == path or name.startswith(f"{path}/") for name in self.files)

    def read(self, path: str) -> bytes:
        self._call()
        if path not in self.files:
            raise LakeError(f"cannot read {self.root}/{path}: it is not there")
        return self.files[path]

    def write(self, path: str, data: bytes) -> None:
        self._call()
        self._step()
        self.files[path] = data[: len(data) // 2]
        self._step()
        self.files[path] = data

    def rename(self, source: str, target: str) -> bool:
        self._call()
        self._step()
        if self._is_there(target):
            return False
        if not self._is_there(source):
            raise LakeError(f"cannot rename {self.root}/{source} to {target}: the file system refused")
        for name in [name for name in self.files if name == source or name.startswith(f"{source}/")]:
            self.files[target + name[len(source) :]] = self.files.pop(name)
        return True

    def delete(self, path: str) -> None:
        self._call()
        for name in [name for name in self.files if name == path or name.startswith(f"{path}/")]:
            self._step()
            del self.files[name]

    def full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def visible(self) -> dict[str, bytes]:
        """What a reader of plain directories reads."""
        return {
            name: data
            for name, data in self.files.items()
            if not any(part.startswith(("_", ".")) for part in name.split("/"))
        }

    def _call(self) -> None:
        self.calls += 1
        self.before_call()

    def _step(self) -> None:
        self.steps += 1
        if self.crash_at is not None and self.steps >= self.crash_at:
            if self.failure is not None:
                raise self.failure
            raise Crash
