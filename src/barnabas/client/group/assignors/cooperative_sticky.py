"""The sticky shares, reached in two steps, so that only those partitions stop that move (KIP-429).

A partition that somebody owns is given to nobody else: its owner finds it missing, gives it up and rejoins, and only
then another gets it. What a member owns stands in its subscription; the generation also in its user data, for
subscriptions of before version 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct

from barnabas.client.group.assignors.assignor import NO_GENERATION, NO_RACKS, Applicant, Assignor, Racks, Shares
from barnabas.client.group.assignors.sticky import assign_sticky, claims
from barnabas.client.metadata import TopicPartition

_GENERATION = Struct(">i")


class CooperativeStickyAssignor(Assignor):
    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def assign(
        self, partition_counts: Mapping[str, int], applicants: Sequence[Applicant], racks: Racks = NO_RACKS
    ) -> Shares:
        dated = [applicant._replace(generation=_generation(applicant)) for applicant in applicants]
        owners = {partition: owner.member_id for partition, owner in claims(dated).items()}
        return {
            member_id: [partition for partition in share if owners.get(partition, member_id) == member_id]
            for member_id, share in assign_sticky(partition_counts, dated).items()
        }

    def user_data(self) -> bytes | None:
        return _GENERATION.pack(self._generation)

    def assigned(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        self._generation = generation


def _generation(applicant: Applicant) -> int:
    if applicant.generation != NO_GENERATION or len(applicant.user_data or b"") < _GENERATION.size:
        return applicant.generation
    generation: int = _GENERATION.unpack_from(applicant.user_data or b"")[0]
    return generation
