"""One process group with cost models for its models, and the clients that talk to it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import soundfile

from tests.clients import environment
from tests.clients.sound import MODEL_RATE
from tests.integration.group import Group, costs, eventually, running

HERE = Path(__file__).parent
KEY = "the key of these tests"
NARROW_KEY = "the key for one request at a time"
FRAMES = 40  # of every utterance, 2 s at 20 frames/s
STEP_MS = 20.0  # 0.8 s for an utterance
TIMEOUT = 90.0

Scenario = Callable[..., Any]


def missing(reason: str) -> None:
    """Skip what this machine lacks; continuous integration has to have it all."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str) -> str:
    """Where a program of this name is, or the end of the test."""
    path = shutil.which(name)
    if path is None:
        missing(f"there is no {name}")
    assert path is not None
    return path


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys.write_text(
        f'[[key]]\nname = "tests"\nkey = "{KEY}"\n[[key]]\nname = "narrow"\nkey = "{NARROW_KEY}"\nconcurrency = 1\n'
    )
    settings: dict[str, object] = {"ar_worker__cost__frames": FRAMES, "gateway__api_keys_file": str(keys)}
    with running(*costs(step_ms=STEP_MS, **settings)) as group:
        yield group


@pytest.fixture
def server(service: Group) -> Iterator[Group]:
    """A server that every test leaves idle. Its keys: KEY, NARROW_KEY."""
    yield service
    eventually(service.idle)


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a recording: two seconds of a tone, WAV."""
    path = tmp_path_factory.mktemp("recordings") / "voice.wav"
    soundfile.write(path, 0.3 * np.sin(np.arange(2 * MODEL_RATE) * 0.1), MODEL_RATE)
    return str(path)


@pytest.fixture
def voice(server: Group, recording: str) -> Iterator[str]:
    """The id of a voice of the server, for one test."""
    name, authorization = "emma", {"Authorization": f"Bearer {KEY}"}

    async def change(method: str, path: str, **body: Any) -> None:
        async with aiohttp.request(method, server.base + path, headers=authorization, **body) as reply:
            assert reply.status == 200, await reply.text()

    form = aiohttp.FormData({"id": name, "text": "What is said."})
    form.add_field("audio", Path(recording).read_bytes(), filename="voice.wav")
    asyncio.run(change("POST", "/v1/references/add", data=form))
    yield name
    asyncio.run(change("DELETE", "/v1/references/delete", json={"reference_id": name}))


@pytest.fixture
def public_voice(server: Group, voice: str) -> str:
    """The id of a voice that clients without its key see as well."""

    async def publish() -> int:
        async with aiohttp.request(
            "PATCH",
            f"{server.base}/model/{voice}",
            headers={"Authorization": f"Bearer {KEY}"},
            data=aiohttp.FormData({"visibility": "public"}),
        ) as reply:
            return reply.status

    assert asyncio.run(publish()) == 200
    return voice


def scenarios(group: str, script: str, base: str) -> Scenario:
    """Runs a scenario of a script (path from here) by what the clients of that group run on: its result."""

    def run(scenario: str, **options: Any) -> Any:
        try:
            interpreter = environment.interpreter(group)
        except environment.UnavailableError as error:
            missing(str(error))
        variables = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYTHON", "OPENAI", "FISH", "ELEVENLABS"))
        }
        arguments = [base, scenario, json.dumps({"key": KEY} | options)]
        command = [str(interpreter), str(HERE / script), *arguments]
        done = subprocess.run(command, env=variables, timeout=TIMEOUT, capture_output=True, text=True)
        assert done.returncode == 0, f"{script} {scenario}: {done.stderr[-3000:]}"
        return _with_sounds(json.loads(done.stdout.splitlines()[-1]))

    return run


def _with_sounds(result: Any) -> Any:
    """The result, with base64 under the name ``sound`` as bytes."""
    if isinstance(result, list):
        return [_with_sounds(item) for item in result]
    if not isinstance(result, dict):
        return result
    return {key: base64.b64decode(value) if key == "sound" else _with_sounds(value) for key, value in result.items()}


@pytest.fixture
def fish(server: Group) -> Scenario:
    """``fishaudio``, the present API of fish-audio-sdk."""
    return scenarios("sdks", "scripts/fish_sdk.py", server.base)


@pytest.fixture
def fish_legacy(server: Group) -> Scenario:
    """``fish_audio_sdk``, the former API of fish-audio-sdk."""
    return scenarios("sdks", "scripts/fish_sdk_legacy.py", server.base)


@pytest.fixture
def fish_npm(server: Group) -> Scenario:
    """``fish-audio`` for Node."""
    return scenarios("node", "node/fish_npm.mjs", server.base)


@pytest.fixture
def openai(server: Group) -> Scenario:
    return scenarios("sdks", "scripts/openai_sdk.py", server.base)


@pytest.fixture
def elevenlabs(server: Group) -> Scenario:
    return scenarios("sdks", "scripts/elevenlabs_sdk.py", server.base)


@pytest.fixture
def livekit(server: Group) -> Scenario:
    return scenarios("agents", "scripts/livekit_plugins.py", server.base)


@pytest.fixture
def pipecat(server: Group) -> Scenario:
    return scenarios("agents", "scripts/pipecat_services.py", server.base)


@pytest.fixture
def wyoming(server: Group) -> Scenario:
    return scenarios("agents", "scripts/wyoming_bridge.py", server.base)
