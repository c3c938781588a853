"""The attacks at full size, or at one that a test suite can afford: each against a broker of its own, each one line."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.core.errors import ErrorCode
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Compression
from barnabas.wire.registry import api
from tests.hostile.bombs import HIDDEN_MIB, LIES, bomb, liar
from tests.hostile.crowds import (
    announce,
    ask,
    count_closed,
    crowd,
    fill,
    many_descriptors,
    never_read,
    produce,
    send_drops,
    storm,
)
from tests.hostile.driver import Driver, Outcome, make_topics
from tests.hostile.fuzzer import Fuzzer, Sent, served_routes
from tests.hostile.trial import Calm, Figures, trial
from tests.hostile.victim import Victim, attacked

WARM_UP_FRAMES = 2000
STALLED_SHARE, SOME_STALLED = 1 / 2000, 10
"""Of the requests, how many may get neither a reply nor an end within a second; one in 10,000 or 20,000 is usual.

A Fetch waits as long as it asks to, a JoinGroup for the members that it knows of, a FindCoordinator for the topic that
it has made; and whatever was sent while the machine had no time.
"""
TWO_GIB = 2**31 - 1  # what 32 bits with a sign can announce
REFUSALS = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)


class Size(NamedTuple):
    """How much of everything."""

    frames: int = 10_000_000
    idle: int = 5000
    newcomers_per_second: int = 1000
    storm_seconds: float = 60
    storm_share: float = 0.9
    """Of the newcomers that are asked for a second: so many must have come, or it was a lesser storm."""
    announcers: int = 1000
    announcing_seconds: float = 10
    readers: int = 1000
    questioners: int = 20
    reading_seconds: float = 20
    bombs: int = 20
    calm_seconds: float = 5
    rest_seconds: float = 2
    """Now and then while frames are fuzzed, so that attack and calm take turns."""
    p99_floor_ms: float = 10
    """Below this a healthy client is served well, whatever it was used to."""
    niceness: int = 19
    """Attackers have machines of their own: here they get what broker and healthy client leave of the processors.

    Among other tests they would get nothing.
    """


class Means(NamedTuple):
    """What an attack works with."""

    victim: Victim
    size: Size
    seed: int
    on_progress: Callable[[Outcome], None]
    calm: Calm


@dataclass(frozen=True, slots=True)
class Attack:
    """What is prepared in peace is handed to what is measured.

    `most_mib` bounds the broker's growth; without it, half of what it had at the start is the bound. `p99_floor_ms` is
    what a healthy client must bear, where that is more than usual.
    """

    work: str
    run: Callable[[Means, Any], None]
    prepare: Callable[[Means], Any] = lambda _: None
    settings: Mapping[str, str] = field(default_factory=dict)
    most_mib: float | None = None
    p99_floor_ms: float = 0.0


def _make_requests(means: Means) -> Iterator[Sent]:
    """Those of the attack. A few are sent before: the first of a kind has its handler loaded and its codec compiled."""
    fuzzer = Fuzzer(means.seed, make_topics(means.victim.address))
    Driver(means.victim.address, fuzzer.requests(WARM_UP_FRAMES)).run()
    return fuzzer.requests(means.size.frames)


def _fuzz(means: Means, requests: Iterator[Sent]) -> None:
    rest = partial(means.calm.rest, means.size.rest_seconds)
    outcome = Driver(means.victim.address, requests, means.on_progress, rest).run()
    assert outcome.answered == means.size.frames, outcome
    assert outcome.closed < 0.6 * outcome.answered, f"{outcome}: little more than the parser was tested"
    stalled = sum(outcome.stalled.values())
    assert stalled <= SOME_STALLED + STALLED_SHARE * outcome.answered, f"{outcome}: requests get no reply"
    answered = means.victim.metric_by_label("barnabas_requests_total", "api")
    for name in {api(key).name for key, _ in served_routes()}:
        times = answered.get(name, 0)
        assert times > means.size.frames / 1000, f"{name} was answered {times:.0f} times only"


def _idle_and_new(means: Means, _: None) -> None:
    with crowd(means.victim, means.size.idle) as idle:
        rate = storm(means.victim, means.size.newcomers_per_second, means.size.storm_seconds)
        assert means.victim.metric("barnabas_connections_open") >= len(idle)
        for one in idle[::100]:
            ask(one)
    least = means.size.storm_share * means.size.newcomers_per_second
    assert rate >= least, f"{rate:.0f} connections a second were made, less than {least:.0f}: is the machine busy?"


def _announce_too_much(means: Means, _: None) -> None:
    ends = time.monotonic() + means.size.announcing_seconds
    while time.monotonic() < ends:
        with crowd(means.victim, means.size.announcers) as sockets:
            announce(sockets, TWO_GIB)
            assert count_closed(sockets) == len(sockets)


def _announce_what_is_allowed(means: Means, topic: str) -> None:
    with crowd(means.victim, means.size.announcers) as sockets:
        announce(sockets, TWO_GIB)
        send_drops(sockets, means.size.announcing_seconds)
        assert means.victim.metric("barnabas_connections_open") >= len(sockets)
        fill(means.victim, topic, 3)  # what somebody else has to say is still heard


def _fill_a_topic(means: Means) -> str:
    topic = means.victim.new_topic()
    fill(means.victim, topic, 30)
    return topic


def _never_read(means: Means, topic: str) -> None:
    size = means.size
    never_read(means.victim, topic, size.readers, size.questioners, size.reading_seconds)


def _make_bombs(codec: Compression, _: Means) -> list[tuple[bytes, bool]]:
    """Batches, and whether each is refused: what snappy can hide is not too much to be opened."""
    return [(bomb(codec), codec is not Compression.SNAPPY), *([(liar(codec), True)] if codec in LIES else [])]


def _throw_bombs(codec: Compression, means: Means, batches: list[tuple[bytes, bool]]) -> None:
    other = Compression.ZSTD if codec is Compression.GZIP else Compression.GZIP  # so that the broker must open it
    topic = means.victim.new_topic({"compression.type": other.codec_name})
    with means.victim.connect(timeout=60) as wire:
        for _ in range(means.size.bombs):
            for batch, is_refused in batches:
                code = produce(wire, topic, batch)
                assert code in (REFUSALS if is_refused else (ErrorCode.NONE,)), ErrorCode(code).name
        builder = BatchBuilder(codec)
        builder.append(b"key", b"value")
        assert produce(wire, topic, bytes(builder.build())) == ErrorCode.NONE


ATTACKS = {
    "fuzz": Attack("{frames:,} frames of every API and version", _fuzz, _make_requests),
    "crowd": Attack(
        "{idle:,} idle connections, {newcomers_per_second:,} new ones a second for {storm_seconds:g} s",
        _idle_and_new,
        most_mib=45,  # an open connection has 4 KiB
        p99_floor_ms=30,
    ),
    "announce": Attack(
        "{announcers:,} connections at a time announce 2 GiB, for {announcing_seconds:g} s",
        _announce_too_much,
        p99_floor_ms=250,  # all of them are refused in a turn of the loop
    ),
    "announce-allowed": Attack(
        "{announcers:,} connections announce 2 GiB, which they may, for {announcing_seconds:g} s",
        _announce_what_is_allowed,
        lambda means: means.victim.new_topic(),
        {"socket.request.max.bytes": str(TWO_GIB)},
        most_mib=40,  # one that has begun a frame has 4 KiB more
        p99_floor_ms=30,
    ),
    "never-read": Attack(
        "{readers:,} readers and {questioners:,} questioners that never read, for {reading_seconds:g} s",
        _never_read,
        _fill_a_topic,
        most_mib=60,  # each holds one reply at most, and the requests that came with it
        p99_floor_ms=250,  # every questioner has 32 small requests served in a turn of the loop
    ),
    **{
        f"bomb-{codec.codec_name}": Attack(
            f"{{bombs:,}} times {hidden:,} MiB in one of {codec.codec_name}",
            partial(_throw_bombs, codec),
            partial(_make_bombs, codec),
            # A batch is opened up to 32 times what a topic takes, on the loop.
            most_mib=150,
            p99_floor_ms=500,
        )
        for codec, hidden in HIDDEN_MIB.items()
    },
}


def carry_out(
    name: str, directory: Path, size: Size, seed: int, on_progress: Callable[[Outcome], None] = lambda _: None
) -> Figures:
    """One attack on a fresh broker, which must be well afterwards."""
    attack = ATTACKS[name]
    figures = Figures(
        name, attack.work.format(**size._asdict()), attack.most_mib, max(attack.p99_floor_ms, size.p99_floor_ms)
    )
    descriptors = max(size.idle, size.announcers, size.readers + size.questioners) + 1000
    with many_descriptors(descriptors), attacked(directory, attack.settings) as victim:
        figures.cold_mib = victim.resident_mib()
        means = Means(victim, size, seed, on_progress, Calm())
        prepared = attack.prepare(means)
        with trial(victim, figures, means.calm, size.calm_seconds):
            _with_niceness(size.niceness, lambda: attack.run(means, prepared))
    return figures


def _with_niceness(niceness: int, attack: Callable[[], None]) -> None:
    def step_back() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)

    with ThreadPoolExecutor(1, initializer=step_back) as attacker:
        attacker.submit(attack).result()
