"""Runs of neighbouring partitions, topic by topic: partition n of topics of one size goes to the same member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.client.group.assignors.assignor import Applicant, Assignor, Shares, subscribers
from barnabas.client.metadata import TopicPartition


class RangeAssignor(Assignor):
    name = "range"

    def assign(self, partition_counts: Mapping[str, int], applicants: Sequence[Applicant]) -> Shares:
        shares: Shares = {applicant.member_id: [] for applicant in applicants}
        for topic, readers in subscribers(partition_counts, applicants).items():
            quota, extra = divmod(partition_counts[topic], len(readers))
            start = 0
            for position, reader in enumerate(readers):
                end = start + quota + (position < extra)
                shares[reader.member_id] += [TopicPartition(topic, partition) for partition in range(start, end)]
                start = end
        return shares
