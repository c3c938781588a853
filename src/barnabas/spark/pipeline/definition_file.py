"""A pipeline from its YAML file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import yaml

from barnabas.spark.pipeline.definition import Pipeline, SinkDefinition, SinkHead
from barnabas.spark.pipeline.errors import PipelineError
from barnabas.spark.pipeline.sinks import SINK_KINDS, sink_kind
from barnabas.spark.pipeline.yaml_nodes import NodeReader, nearest


def load_pipeline(file: Path, environment: Mapping[str, str] = os.environ) -> Pipeline:
    try:
        text = file.read_text()
    except OSError as error:
        raise PipelineError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PipelineError(f"cannot read {file}: it is not text in UTF-8") from None
    return parse_pipeline(text, str(file), environment)


def parse_pipeline(text: str, file: str, environment: Mapping[str, str]) -> Pipeline:
    reader = NodeReader(file, environment)

    def read_sink(node: yaml.Node, what: str) -> SinkDefinition:
        kind = reader.text_of(node, "kind")
        if kind is None:
            raise reader.error(node, f"a sink needs the key 'kind': {', '.join(sorted(SINK_KINDS))}")
        if kind not in SINK_KINDS:
            raise reader.error(
                reader.node_of(node, "kind"), f"there is no sink of kind {kind!r}{nearest(kind, list(SINK_KINDS))}"
            )
        head, settings = reader.read_parts(node, f"a sink of kind {kind}", SinkHead, sink_kind(kind).settings)
        return SinkDefinition(head, settings)

    reader.add_special(SinkDefinition, read_sink)
    pipeline = reader.read(reader.root(text), Pipeline, "a pipeline")
    assert isinstance(pipeline, Pipeline)
    return pipeline
