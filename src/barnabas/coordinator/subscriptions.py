"""What members of a consumer group ask for: topics by name, and by a regular expression over names.

Regular expressions are RE2 (KIP-848), matched against the whole name. RE2 runs in time linear in the name, whatever the
expression, and a bound on the memory of the compiled form bounds the rest; Python's own would let one member halt the
coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from barnabas.core.errors import ErrorCode, KafkaError

MAX_PATTERN_MEMORY_BYTES = 1 << 20
NO_HASH = 0  # of a group that reads no topic that exists


class TopicInfo(NamedTuple):
    id: bytes
    partitions: int


Topics: TypeAlias = Mapping[str, TopicInfo]
"""The topics of the cluster by name. Never changed: as long as it is the same object, nothing has changed."""


@lru_cache(maxsize=256)
def compile_pattern(regex: str) -> Any:
    """The expression, ready to match; INVALID_REGULAR_EXPRESSION if it is none."""
    import re2  # a large library, and only for those who subscribe by pattern

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_MEMORY_BYTES
    options.never_capture = True
    try:
        return re2.compile(regex, options=options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}.",
        ) from None


def matching_topics(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole; an expression that is not valid (any more) matches none."""
    try:
        matches = compile_pattern(regex).fullmatch
    except KafkaError:
        return frozenset()
    return frozenset(name for name in names if matches(name))


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """A number that changes with what the group reads: topics that come, go, are made anew, or grow (KIP-1101).

    Kafka keeps another hash of the same in its records. Whoever takes a group over from the other finds a change,
    and assigns anew once.
    """
    hashed = blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            found = True
            hashed.update(b"%s%d %b " % (topic.id, topic.partitions, name.encode()))
    return int.from_bytes(hashed.digest(), "big", signed=True) if found else NO_HASH
