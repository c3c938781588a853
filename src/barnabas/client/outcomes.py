"""What comes of a call on many things at once: a value for each, or an error that tells which failed and why."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from barnabas.client.errors import refused
from barnabas.core.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")
_MOST_TOLD = 3


class PartlyFailed(KafkaError):
    """Things that were asked for at once failed, some or all: `errors` has these, `done` the results of the others."""

    def __init__(self, done: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> None:
        worst = next((error for error in errors.values() if not error.retriable), next(iter(errors.values())))
        reasons = list(dict.fromkeys(str(error) for error in errors.values()))
        told = "; ".join(reasons[:_MOST_TOLD]) + ("; ..." if len(reasons) > _MOST_TOLD else "")
        count = len(done) + len(errors)
        super().__init__(worst.code, told if count == 1 else f"{len(errors)} of {count} failed: {told}")
        self.done = dict(done)
        self.errors = dict(errors)


def settled(answers: Mapping[K, V | KafkaError]) -> dict[K, V]:
    """The values, if nothing failed."""
    errors = {item: answer for item, answer in answers.items() if isinstance(answer, KafkaError)}
    done = {item: answer for item, answer in answers.items() if not isinstance(answer, KafkaError)}
    if errors:
        raise PartlyFailed(done, errors)
    return done


async def alone(call: Awaitable[V]) -> V:
    """What comes of a call on many things that has only one: its error by itself."""
    try:
        return await call
    except PartlyFailed as failed:
        [error] = failed.errors.values()
        raise error from None


def refusal(code: int, what: str, message: str | None = None) -> KafkaError | None:
    """Why the broker refused `what`; None if it did not."""
    return refused(code, what, message) if code else None
