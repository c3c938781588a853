"""`barnabas up` that learns late of partition 1 of a topic: it does not know it when the first batch arrives.

Used as a wrapper: `python late_broker.py TOPIC COMMAND...`.
"""

from __future__ import annotations

import sys

from barnabas.cli.main import main
from barnabas.cluster.partition import Partition
from barnabas.cluster.replicas import Replicas
from barnabas.core.errors import ErrorCode, KafkaError

PARTITION = 1


def learn_late_of(topic: str) -> None:
    get = Replicas.get
    is_known = False

    def late_get(self: Replicas, name: str, index: int) -> Partition:
        nonlocal is_known
        if (name, index) == (topic, PARTITION) and not is_known:
            is_known = True
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return get(self, name, index)

    Replicas.get = late_get  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    learn_late_of(sys.argv[1])
    sys.argv = ["barnabas", *sys.argv[sys.argv.index("barnabas.cli") + 1 :]]
    main()
