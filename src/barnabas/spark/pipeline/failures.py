"""What went wrong inside Spark, in one sentence: its errors bring stacks of two languages along."""

from __future__ import annotations

import re

from barnabas.spark.data_loss import SKIP_LOSSES
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.formats import UNREADABLE
from barnabas.spark.two_phases import BEGIN_AGAIN

_UNREADABLE = re.compile(rf"{UNREADABLE}(\S+) (\d+) (\d+)")
_PYTHON = re.compile(
    r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Exit|Full|Lost|Loss|Reach|Option|Timeout)\w*): (.+)$", re.MULTILINE
)
"""The last line of a Python stack."""
_REMEDIES = {
    SKIP_LOSSES: "give the source `data_loss: skip`",
    BEGIN_AGAIN: (
        "To have every row once, give the sink another name and another topic: it begins where the pipeline began. "
        "For dead letters, give the pipeline another name"
    ),
}
"""The data source speaks of its options; a pipeline's file has no place for these."""


class UnreadableRecord(PipelineError):
    """A record that cannot be read, in a pipeline that has no topic for such."""

    def __init__(self, topic: str, partition: int, offset: int, cause: str) -> None:
        remedy = "set it right, or give the pipeline dead_letters, so that such records go to a topic"
        super().__init__(f"record {offset} of {topic}-{partition} cannot be read: {cause}; {remedy}")


def unreadable_in(error: BaseException) -> tuple[str, int, int] | None:
    """Topic, partition and offset of the record that stopped the run, if that is what happened."""
    found = _UNREADABLE.search(str(error))
    return (found[1], int(found[2]), int(found[3])) if found else None


def brief(error: BaseException) -> str:
    """The sentence that counts: of a Python function in a task its error, else Spark's own first line."""
    while (cause := getattr(error, "cause", None)) is not None:  # of Spark's errors, the one behind it
        error = cause
    text = str(error)
    told = _PYTHON.findall(text)
    if told and "Traceback (most recent call last)" in text:
        kind, message = told[-1]
        return f"{kind}: {in_words_of_pipelines(message)}"
    first = next(iter(text.strip().splitlines()), "")
    return first or type(error).__name__


def in_words_of_pipelines(text: str) -> str:
    """An error of the data source, with what the owner of a pipeline can do about it."""
    for said, meant in _REMEDIES.items():
        text = text.replace(said, meant)
    return text
