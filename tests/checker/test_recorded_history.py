"""What two histories have in common when their digests are the same."""

from __future__ import annotations

from tests.checker.history import Fault, History

CRASH, CUT = Fault("crash", "broker 1"), Fault("cut", "broker 2", "one way")


def history(*steps: Fault | str, start: float = 0.0) -> History:
    times = (start + step for step in range(100))
    made = History(lambda: next(times))
    for step in steps:
        if isinstance(step, Fault):
            made.record(step)
        else:
            made.trace("packet", step)
    return made


def test_events_and_traces_and_their_order_and_times_count_for_the_digest() -> None:
    digest = history(CRASH, "a", CUT).digest
    assert digest == history(CRASH, "a", CUT).digest
    others = (
        history(CRASH, "a", CUT, start=1.0),
        history(CUT, "a", CRASH),
        history(CRASH, CUT, "a"),
        history(CRASH, "b", CUT),
        history(CRASH, "a"),
    )
    assert digest not in {other.digest for other in others}


def test_a_history_is_told_event_by_event_and_long_ones_are_cut() -> None:
    first, second = str(history(CRASH, Fault("long", "x" * 1000))).splitlines()
    assert first == "  0.000000 Fault(kind='crash', target='broker 1', detail='')"
    assert len(second) < 320
