"""A cluster for a test: up in a fraction of a second, broken on request, gone without a trace.

    with Cluster(brokers=3) as cluster:
        topic = cluster.create_topic(partitions=3)
        cluster.kill(cluster.leader_of(topic, 0))

Brokers are numbered from 1. Each is a process, forked from one that has imported everything (`warden`), unless
`in_process` asks for a thread of the test's own process. Their data is in a temporary directory; ports are free ones
of the loopback, and a broker that is started again keeps its own.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import uuid
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from barnabas.core.broker_config import BrokerConfig
from barnabas.core.local_cluster import OWN_KEYS, broker_dir, shared_settings
from barnabas.testing import forks
from barnabas.testing.forks import ClusterError, Forks, keep_warden

if TYPE_CHECKING:
    from barnabas.testing.in_process import ThreadBroker

__all__ = ["Cluster", "ClusterError", "keep_warden"]

HOST = "127.0.0.1"
_MAX_BROKERS = 100
_KEYS_OF_A_PROCESS = ("barnabas.metrics.port", "barnabas.metrics.host", "barnabas.log.level", "barnabas.log.format")
_STOP_PATIENCE_S = 20.0
_QUICK_GROUPS = {"group.consumer.assignment.interval.ms": "0"}
"""Otherwise who joins soon after another has left is assigned nothing before its second heartbeat, seconds later."""


class State(Enum):
    RUNNING = "runs"
    PAUSED = "is paused"
    DOWN = "does not run"


class Member:
    """One broker as the cluster knows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = State.DOWN
        self.is_cut = False
        self.address = ""
        self.pid = 0
        self.thread: ThreadBroker | None = None


class Cluster:
    def __init__(
        self, brokers: int = 1, *, options: Mapping[str, object] | None = None, in_process: bool = False
    ) -> None:
        """`options` are Kafka's settings for every broker, such as `{"log.retention.ms": 60000}`."""
        if not 1 <= brokers <= _MAX_BROKERS:
            raise ValueError(f"brokers={brokers} is not between 1 and {_MAX_BROKERS}")
        if in_process and brokers > 1:
            raise ValueError(f"in_process is for one broker; {brokers} of them need processes of their own")
        self._options = {key: _text(value) for key, value in (options or {}).items()}
        if own := [key for key in OWN_KEYS if key in self._options]:
            raise ValueError(f"option {own[0]!r} is the cluster's own: directories and ports are chosen by it")
        if in_process and (lost := [key for key in _KEYS_OF_A_PROCESS if key in self._options]):
            raise ValueError(f"option {lost[0]!r} is for a process; leave in_process=True out")
        BrokerConfig(self._options)  # a wrong option is told here
        self.in_process = in_process
        self._members = {number: Member(number) for number in range(1, brokers + 1)}
        self._directory: Path | None = None
        self._forks: Forks | None = None

    # Life

    def __enter__(self) -> Self:
        if self._directory is not None:
            raise ClusterError("this cluster was entered before; make a new one")
        self._directory = Path(tempfile.mkdtemp(prefix="barnabas-"))
        try:
            if not self.in_process:
                self._forks = forks.acquire()
            self._start(*self._members)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        import asyncio

        starting = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            await asyncio.to_thread(self.close)
            raise

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End all brokers at once, whatever they are doing, and remove their data."""
        held, self._forks = self._forks, None
        try:
            if held is not None:
                held.order("clear", directory=str(self._directory))
            for member in self._members.values():
                member.state = State.DOWN
                thread, member.thread = member.thread, None
                if thread is not None:
                    thread.stop()
        finally:
            if held is not None:
                forks.release(held)
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)

    # Where it is

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self._members)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as clients take them."""
        return ",".join(self.address(number) for number in self._members)

    def address(self, broker: int) -> str:
        member = self._member(broker)
        if not member.address:
            raise ClusterError("this cluster does not run; use `with Cluster() as cluster`")
        return member.address

    def log(self, broker: int) -> str:
        """What a broker that is a process has logged so far."""
        return self._log_path(self._process(broker, "read the log of").number).read_text(errors="replace")

    # Faults

    def kill(self, broker: int) -> None:
        """End a broker as a crash would (SIGKILL)."""
        member = self._process(broker, "kill", State.RUNNING, State.PAUSED)
        member.state = State.DOWN
        self._order("end", pid=member.pid, by=signal.SIGKILL, patience_s=_STOP_PATIENCE_S)

    def stop(self, broker: int) -> None:
        """End a broker in order, as SIGTERM does: its partitions get other leaders before."""
        member = self._member(broker, "stop", State.RUNNING)
        member.state = State.DOWN
        thread, member.thread = member.thread, None
        if thread is not None:
            thread.stop()
        elif not self._order("end", pid=member.pid, by=signal.SIGTERM, patience_s=_STOP_PATIENCE_S):
            raise ClusterError(f"broker {broker} did not stop within {_STOP_PATIENCE_S:.0f} s\n{self.log(broker)}")

    def start(self, broker: int) -> None:
        """Start a broker that was killed or stopped, on its old data and its old port."""
        member = self._member(broker, "start", State.DOWN)
        member.is_cut = False
        self._start(member.number)

    def pause(self, broker: int) -> None:
        """Freeze a broker's process (SIGSTOP): its connections stay, and nothing is answered."""
        member = self._process(broker, "pause", State.RUNNING)
        self._order("pause", pid=member.pid)
        member.state = State.PAUSED

    def resume(self, broker: int) -> None:
        member = self._process(broker, "resume", State.PAUSED)
        self._order("resume", pid=member.pid)
        member.state = State.RUNNING

    def partition(self, broker: int) -> None:
        """Cut a broker off from clients, from all other brokers and from the metadata store, in both directions.

        Nothing is refused or reset: bytes stop, as if packets were dropped. The broker lives on.
        """
        self._set_cut(self._member(broker, "partition", State.RUNNING), True)

    def heal(self, broker: int) -> None:
        self._set_cut(self._member(broker, "heal", State.RUNNING), False)

    # Topics

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic, under a name that is not used yet if none is given, and wait for its leaders."""
        from barnabas.testing.topics import create

        chosen = name or f"topic-{uuid.uuid4().hex[:12]}"
        texts = {key: _text(value) for key, value in (config or {}).items()}
        create(self._reachable(), chosen, partitions, replication_factor, texts)
        return chosen

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition now; an error if none does."""
        from barnabas.testing.topics import leader_of

        return leader_of(self._reachable(), topic, partition)

    def controller(self) -> int:
        """The broker that decides for the cluster now."""
        from barnabas.testing.topics import controller

        return controller(self._reachable())

    # Members

    def _reachable(self) -> list[str]:
        members = [each for each in self._members.values() if each.state is State.RUNNING and not each.is_cut]
        if not members:
            raise ClusterError("no broker of this cluster can be reached")
        return [member.address for member in members]

    def _start(self, *numbers: int) -> None:
        place = self._place()
        settings = {number: self._settings(number, place) for number in numbers}
        if self.in_process:
            from barnabas.testing.in_process import ThreadBroker

            for number in numbers:
                member = self._members[number]
                member.thread = ThreadBroker(BrokerConfig(settings[number]))
                member.address, member.state = member.thread.address, State.RUNNING
            return
        wanted = [
            {"number": number, "settings": settings[number], "log": str(self._log_path(number))} for number in numbers
        ]
        for number, started in zip(numbers, self._order("start", directory=str(place), brokers=wanted), strict=True):
            member = self._members[number]
            member.pid, member.address, member.state = started["pid"], started["address"], State.RUNNING

    def _settings(self, number: int, place: Path) -> dict[str, str]:
        return {
            **shared_settings(place, len(self._members)),
            **_QUICK_GROUPS,
            **self._options,
            "node.id": str(number),
            "log.dirs": str(broker_dir(place, number)),
            "listeners": f"PLAINTEXT://{self._members[number].address or f'{HOST}:0'}",
        }

    def _set_cut(self, member: Member, is_cut: bool) -> None:
        if member.is_cut == is_cut:
            raise ClusterError(f"broker {member.number} is {'already' if is_cut else 'not'} cut off")
        if member.thread is not None:
            member.thread.set_cut(is_cut)
        else:
            self._order("cut" if is_cut else "heal", pid=member.pid)
        member.is_cut = is_cut

    def _member(self, broker: int, verb: str = "", *states: State) -> Member:
        member = self._members.get(broker)
        if member is None:
            raise ClusterError(f"there is no broker {broker}; there are {', '.join(map(str, self._members))}")
        if states and member.state not in states:
            raise ClusterError(f"cannot {verb} broker {broker}: it {member.state.value}")
        return member

    def _process(self, broker: int, verb: str, *states: State) -> Member:
        if self.in_process:
            raise ClusterError(f"cannot {verb} a broker in this process; leave in_process=True out")
        return self._member(broker, verb, *states)

    def _order(self, do: str, **arguments: object) -> Any:
        if self._forks is None:
            raise ClusterError("this cluster does not run; use `with Cluster() as cluster`")
        return self._forks.order(do, **arguments)

    def _place(self) -> Path:
        if self._directory is None:
            raise ClusterError("this cluster does not run; use `with Cluster() as cluster`")
        return self._directory

    def _log_path(self, number: int) -> Path:
        return self._place() / f"broker-{number}.log"


def _text(value: object) -> str:
    """A setting as Kafka's files have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
