"""Pipelines from topics to sinks, driven by one YAML file."""
