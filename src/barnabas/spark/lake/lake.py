"""A lake that is open for writing: its state, and the commits that change it, one after the other.

Owned by one run; its tasks may commit from several threads. If a commit fails the state is read again before anything
else is done, because only the file system knows whether the entry is there.

To open a lake is a commit too, and takes it from whoever had it: that run may be alive, on another machine, where no
lock reaches. The version that it would commit next is taken then, and it reads that the lake is another's. So what it
has staged cannot be committed any more, and is thrown away only after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from uuid import uuid4

from barnabas.spark.lake.commit import LatePolicy, Observation, StagedFile, complete_hours, load_entry
from barnabas.spark.lake.errors import LakeError
from barnabas.spark.lake.evolution import Evolution, Schema, evolved
from barnabas.spark.lake.filesystem import FileSystem
from barnabas.spark.lake.formats import FileFormat
from barnabas.spark.lake.manifest import DataFile, Entry, State, Table, TopicPartition
from barnabas.spark.lake.manifest_log import CHECKPOINT_EVERY, ManifestLog, moved
from barnabas.spark.lake.names import STAGING
from barnabas.spark.lake.publish import clean_staging, publish
from barnabas.spark.ranges import OffsetRange


@dataclass(frozen=True, slots=True)
class LakePolicy:
    table: Table
    late: LatePolicy = LatePolicy.ACCEPT
    lateness_ms: int = 0
    evolution: Evolution = Evolution.ADD


class Lake:
    def __init__(self, fs: FileSystem, policy: LakePolicy, checkpoint_every: int = CHECKPOINT_EVERY) -> None:
        self.fs = fs
        self._policy = policy
        self._log = ManifestLog(fs, checkpoint_every)
        self._lock = RLock()
        self._writer = uuid4().hex
        self._state: State | None = None

    def open(self) -> None:
        """Finish what the last run has committed, throw away what it has not, begin a lake that is not there yet."""
        with self._lock:
            state = self._read(is_mine=False)
            kind, table = "open", self._policy.table
            if state.table is None:
                self._check_empty()
                kind = "create"
            elif state.table != table:
                raise LakeError(f"{self.fs.root} holds {_said(state.table)}; it cannot take {_said(table)}")
            left = self.fs.list(STAGING)
            self._state = state
            self.commit(Entry(state.version + 1, kind, writer=self._writer, table=table))
            clean_staging(self.fs, left)

    def state(self) -> State:
        with self._lock:
            if self._state is None:
                self._state = self._read(is_mine=True)
            return self._state

    def _read(self, *, is_mine: bool) -> State:
        state, entry = self._log.read()
        if is_mine and state.writer != self._writer:
            raise moved(self.fs)
        if entry is not None:
            publish(self.fs, state, entry)
        return state

    def new_staging(self, name: str) -> str:
        """A directory that no other attempt writes to, not even one whose driver is dead."""
        return f"{STAGING}/{name}-{uuid4().hex}"

    def load(
        self,
        staged: Sequence[StagedFile],
        *,
        staging: str,
        ranges: Sequence[OffsetRange],
        begins: Mapping[TopicPartition, int] | None = None,
        query: tuple[str, int] | None,
        schema: Schema,
        seen: Observation | None,
    ) -> Sequence[DataFile]:
        """Commit a batch with its offsets, bring its files to their places, and return them."""
        with self._lock:
            state = self.state()
            entry = load_entry(
                state,
                staged,
                staging=staging,
                ranges=ranges,
                begins=begins,
                query=query,
                late=self._policy.late,
                schema=self._evolved(state, schema),
            )
            if not entry.moves:  # a staging directory that is there tells that something is left to do
                self.fs.delete(staging)
                entry = replace(entry, staging=None)
            self.commit(self._with_hours(state, entry, seen))
            return entry.add

    def complete_hours(self, seen: Observation) -> None:
        """Mark hours that are complete because time has passed, without new rows."""
        with self._lock:
            state = self.state()
            entry = self._with_hours(state, Entry(state.version + 1, "hours"), seen)
            if entry.complete_until is not None:
                self.commit(entry)

    def commit(self, entry: Entry) -> None:
        with self._lock:
            state, self._state = self.state(), None
            after = self._log.append(state, entry)
            publish(self.fs, after, entry)
            self._state = after

    def _evolved(self, state: State, schema: Schema) -> Schema:
        """Another task may have changed the columns since the rows were fitted to them."""
        if state.schema is None or state.schema == schema:
            return schema
        after = evolved(state.schema, schema, self._policy.evolution)
        if self._policy.table.format == FileFormat.CSV and after["fields"][: len(schema["fields"])] != schema["fields"]:
            raise LakeError(f"two tasks have added columns to {self.fs.root} at once; run it again")
        return after

    def _with_hours(self, state: State, entry: Entry, seen: Observation | None) -> Entry:
        return entry if seen is None else complete_hours(state, entry, seen, self._policy.lateness_ms)

    def _check_empty(self) -> None:
        others = [listed.name for listed in self.fs.list("") if not listed.name.startswith(("_", "."))]
        if others:
            raise LakeError(
                f"{self.fs.root} has no manifest, but holds {others[0]}; a lake begins in an empty directory, "
                "and one whose manifest was removed must get it back from a copy"
            )


def _said(table: Table) -> str:
    return f"{table.format} by {table.time_column} in {table.date_name}=/{table.hour_name}="
