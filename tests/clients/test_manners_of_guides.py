"""The guide's first page and its page of errors say what is so."""

from __future__ import annotations

import re
import subprocess
import sys

import barnabas
from barnabas.client import errors, outcomes
from barnabas.client.consume import consumer_errors
from barnabas.client.produce import transaction_errors
from tests.peers import ROOT, free_port

GUIDE = ROOT / "docs" / "guide"
ERRORS = (GUIDE / "errors.md").read_text()


def run(page: str, *replacements: tuple[str, str]) -> str:
    (program,) = re.findall(r"```python\n(.*?)```", (GUIDE / page).read_text(), re.DOTALL)
    for old, new in replacements:
        program = program.replace(old, new)
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout


def test_the_first_steps_lead_somewhere(cluster: str, topic_name: str) -> None:
    printed = run("index.md", ("localhost:9092", cluster), ("orders", topic_name), ("billing", topic_name))
    assert printed == "b'ann' b'two apples'\n"


def test_the_page_of_errors_shows_what_is_printed() -> None:
    port = free_port()
    shown = "".join(
        line.removeprefix("    ") + "\n" for line in ERRORS.splitlines() if line.startswith("    cannot reach")
    )
    printed = run("errors.md", ("localhost:1", f"localhost:{port}"))
    assert printed.startswith(shown.replace("localhost:1", f"localhost:{port}"))
    assert printed.endswith("NETWORK_EXCEPTION may pass\n")


def test_the_page_of_errors_tells_of_every_error() -> None:
    public = {name: getattr(barnabas, name) for name in barnabas.__all__}
    errors = {name for name, value in public.items() if isinstance(value, type) and issubclass(value, Exception)}
    assert errors - set(re.findall(r"`(\w+)`", ERRORS)) == set()


def test_every_page_that_is_linked_is_there() -> None:
    for page in GUIDE.glob("*.md"):
        for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_error_of_the_clients_is_public() -> None:
    for module in (consumer_errors, errors, outcomes, transaction_errors):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == module.__name__:
                assert name in barnabas.__all__
