from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import barnabas.wire.messages
from barnabas.wire.registry import API_KEYS, api, api_named, snake_case


def test_every_message_module_belongs_to_an_api_and_every_api_has_one() -> None:
    directory = Path(barnabas.wire.messages.__path__[0])
    assert sorted(path.stem for path in directory.glob("k*.py")) == sorted(each.stem for each in API_KEYS.values())


def test_an_api_is_found_by_key_and_by_name() -> None:
    assert api(0) is api_named("Produce")
    assert api(0).stem == "k00_produce"
    assert api(0).request.__name__ == "ProduceRequest"
    assert api(0).response.__name__ == "ProduceResponse"
    with pytest.raises(KeyError):
        api(4)
    with pytest.raises(KeyError):
        api_named("LeaderAndIsr")


def test_importing_the_registry_imports_no_message() -> None:
    program = "import sys, barnabas.wire.headers; print([name for name in sys.modules if '.messages' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("kafkas", "ours"),
    [
        ("TopicId", "topic_id"),
        ("IsrNodes", "isr_nodes"),
        ("ISRNodes", "isr_nodes"),
        ("Host", "host"),
        ("V2Only", "v2_only"),
    ],
)
def test_kafkas_names_become_snake_case(kafkas: str, ours: str) -> None:
    assert snake_case(kafkas) == ours
