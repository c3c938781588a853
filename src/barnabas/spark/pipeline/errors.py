"""What stops a pipeline, said so that its owner knows what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """Something that its owner has to set right: one sentence that names it, shown without a stack."""


class SinkError(PipelineError):
    """A sink that cannot be written: full, read-only, of another schema, or damaged."""
