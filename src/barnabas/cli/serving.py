"""What `up` and `broker` share: load the configuration, serve until a signal, say one line when ready or refused."""

from __future__ import annotations

import os
from collections.abc import Sequence

from barnabas.broker.app import StartError
from barnabas.broker.process import serve
from barnabas.cli.output import Output, fail, show
from barnabas.core.broker_config import BrokerConfig
from barnabas.core.config import ConfigError


def serve_broker(file: tuple[str, bytes], settings: Sequence[str], output: Output) -> None:
    """Serve with settings from a file, the environment and the command line, the last one counting most."""
    try:
        config = BrokerConfig.load(file, os.environ, settings)
    except ConfigError as error:
        fail(str(error))

    def on_ready(addresses: Sequence[str]) -> None:
        ready = {"event": "ready", "addresses": list(addresses), "log_dirs": list(config.log_dirs), "pid": os.getpid()}
        show(ready, output, f"ready {','.join(addresses)} data in {','.join(config.log_dirs)}", indent=None)

    try:
        serve(config, on_ready, config["barnabas.metrics.port"])
    except StartError as error:
        fail(str(error))
