"""All partitions dealt out in turns; a member that does not read a topic is passed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from barnabas.client.group.assignors.assignor import NO_RACKS, Applicant, Assignor, Racks, Shares, subscribers
from barnabas.client.metadata import TopicPartition


class RoundRobinAssignor(Assignor):
    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], applicants: Sequence[Applicant], racks: Racks = NO_RACKS
    ) -> Shares:
        shares: Shares = {applicant.member_id: [] for applicant in applicants}
        turns = cycle(sorted(applicants, key=lambda each: each.order))
        for topic in subscribers(partition_counts, applicants):
            for partition in range(partition_counts[topic]):
                reader = next(applicant for applicant in turns if topic in applicant.topics)
                shares[reader.member_id].append(TopicPartition(topic, partition))
        return shares
