"""What can be wrong with a lake, said so that its owner knows what to do."""

from __future__ import annotations

from barnabas.spark.pipeline.errors import SinkError


class LakeError(SinkError):
    """A lake that cannot be read or written as it is."""


class ManifestDamaged(LakeError):
    """A manifest that is cut off, altered or has a hole: nothing is done before it has been repaired."""


class ManifestMoved(LakeError):
    """Another run has the lake now, and this one commits nothing any more."""


class WrongSchema(LakeError):
    """Rows that do not fit the columns of the lake."""
