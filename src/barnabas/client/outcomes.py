"""What comes of a call on many things at once: a value for each, or an error that tells which failed and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from barnabas.client.errors import refused
from barnabas.core.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")
_MOST_TOLD = 3


class PartlyFailed(KafkaError):
    """Some of the things that were asked for failed: `errors` has them, `done` has the results of the others."""

    def __init__(self, done: Mapping[Any, Any], errors: Mapping[Any, KafkaError]) -> None:
        worst = next((error for error in errors.values() if not error.retriable), next(iter(errors.values())))
        told = [str(error) for error in errors.values()][:_MOST_TOLD]
        if len(errors) > _MOST_TOLD:
            told.append(f"and {len(errors) - _MOST_TOLD} more")
        super().__init__(worst.code, f"{len(errors)} of {len(done) + len(errors)} failed: {'; '.join(told)}")
        self.done = dict(done)
        self.errors = dict(errors)


def settled(answers: Mapping[K, V | KafkaError]) -> dict[K, V]:
    """The values, if nothing failed; the error, if all failed by one; else what failed and what did not."""
    errors = {item: answer for item, answer in answers.items() if isinstance(answer, KafkaError)}
    done = {item: answer for item, answer in answers.items() if not isinstance(answer, KafkaError)}
    if not errors:
        return done
    first = next(iter(errors.values()))
    if not done and all(error is first for error in errors.values()):
        raise first
    raise PartlyFailed(done, errors)


def refusal(code: int, what: str, message: str | None = None) -> KafkaError | None:
    """Why the broker refused `what`; None if it did not."""
    return refused(code, what, message) if code else None
