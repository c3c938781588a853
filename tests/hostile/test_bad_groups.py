"""What groups could be made to hold: assignments and subscriptions as large as a request may be."""

from __future__ import annotations

from pathlib import Path

from barnabas.core.errors import ErrorCode
from tests.broker.group_client import Group
from tests.hostile.victim import attacked
from tests.hostile.wire import MAX_FRAME_BYTES

ASSIGNMENT_BYTES = MAX_FRAME_BYTES - 1000
ROUNDS = 3


def test_assignments_of_100_mib_fail_one_after_the_other_without_adding_up(tmp_path: Path) -> None:
    with attacked(tmp_path) as victim, Group(victim.address) as group:
        member = group.member()
        before = victim.resident_mib()
        with victim.witness() as witness:
            for generation in range(1, ROUNDS + 1):
                assert member.join().generation_id == generation
                response = member.sync({member.member_id: bytes(ASSIGNMENT_BYTES)})
                assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        witness.was_served(15.0)
        assert victim.peak_mib() - before < 400
        assert victim.resident_mib() - before < 150
        member.join()
        assert bytes(member.sync({member.member_id: b"small"}).assignment) == b"small"
