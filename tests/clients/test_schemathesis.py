"""Schemathesis, which makes requests of the description that the server gives of itself, good ones and bad ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import environment
from tests.clients.conftest import missing
from tests.integration.group import Group, costs, eventually, running

pytestmark = pytest.mark.slow

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
SCRIPTS = Path(__file__).parent / "scripts"
EXAMPLES = 10  # of each operation, beside those that go through the schema systematically
SECONDS = 180.0


@pytest.fixture
def quick_group() -> Iterator[Group]:
    """Replies of few frames, so that many requests take little time."""
    with running(*costs(0.5, 0.5, ar_worker__cost__frames=3, gateway__max_text_length=500)) as group:
        yield group
        eventually(group.idle)


def test_the_server_is_as_it_describes_itself(quick_group: Group, tmp_path: Path) -> None:
    try:
        python = environment.interpreter("fuzz")
    except environment.UnavailableError as error:
        missing(str(error))
    command = [str(python.with_name("schemathesis")), "--config-file", str(SCRIPTS / "schemathesis.toml"), "run"]
    command += [f"{quick_group.base}/openapi.json", "--url", quick_group.base, "--checks", ",".join(CHECKS)]
    command += ["--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES), "--seed", "5", "--no-shrink"]
    command += ["--continue-on-failure", "--request-timeout", "30", "--warnings", "off"]
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    variables |= {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(command, cwd=tmp_path, env=variables, timeout=SECONDS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert quick_group.ready()
