"""The bundled model speaks: a speech recogniser that knows nothing of Shoal understands what the server says."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from models.recipe.test_sentences import TEST_SENTENCES
from models.recipe.words import errors, words
from tests.clients import environment
from tests.clients.conftest import missing
from tests.integration.client import Reply, speak
from tests.integration.group import running

SENTENCES = TEST_SENTENCES[:12]
VOICES = ("ada", "ben")
MOST_WRONG = 0.2  # of all words; the judge mishears some by itself


def transcripts(paths: list[Path]) -> list[str]:
    try:
        python = environment.interpreter("judge")
    except environment.UnavailableError as error:
        missing(str(error))
    script = Path(__file__).parent / "scripts" / "judge.py"
    done = subprocess.run([python, script, *paths], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    heard: list[str] = json.loads(done.stdout)
    return heard


@pytest.mark.slow
def test_a_recogniser_understands_both_voices(tmp_path: Path) -> None:
    async def speak_all(base: str) -> list[Reply]:
        asked = [(voice, text) for voice in VOICES for text in SENTENCES]
        calls = (speak(base, text, reference_id=voice, seed=1, streaming=False) for voice, text in asked)
        return list(await asyncio.gather(*calls))

    with running() as group:
        replies = asyncio.run(speak_all(group.base))
    paths = [tmp_path / f"{number:02d}.wav" for number in range(len(replies))]
    for path, reply in zip(paths, replies, strict=True):
        assert reply.status == 200
        path.write_bytes(reply.body)
    heard = transcripts(paths)
    for voice in range(len(VOICES)):
        said = heard[voice * len(SENTENCES) : (voice + 1) * len(SENTENCES)]
        wrong = sum(errors(words(text), words(one)) for text, one in zip(SENTENCES, said, strict=True))
        total = sum(len(words(text)) for text in SENTENCES)
        assert wrong / total < MOST_WRONG, list(zip(SENTENCES, said, strict=True))
