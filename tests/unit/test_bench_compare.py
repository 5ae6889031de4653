"""The comparison of two servers: alternating loads, medians and ratios, and a checkpoint to run them on."""

from __future__ import annotations

import asyncio
import io
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
from aiohttp import web
from aiohttp.test_utils import TestServer

from common.checkpoint import load_codec_config, load_model_config
from deploy.cli.server import Server
from tests.bench.compare import Measured, Side, compare, medians, rows
from tests.bench.random_checkpoint import Size, write


def wav(seconds: float) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(int(16000 * seconds), np.float32), 16000, "PCM_16", format="WAV")
    return file.getvalue()


async def fake(log: list[str], name: str, delay: float) -> TestServer:
    async def tts(request: web.Request) -> web.Response:
        log.append(name)
        assert (await request.json())["max_new_tokens"] == 7
        await asyncio.sleep(delay)
        return web.Response(body=wav(0.5), content_type="audio/wav")

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    app = web.Application()
    app.add_routes([web.post("/v1/tts", tts), web.get("/v1/health", health)])
    server = TestServer(app)
    await server.start_server()
    return server


def test_two_servers_get_the_same_work_in_turns() -> None:
    async def test() -> None:
        log: list[str] = []
        servers = [await fake(log, name, delay) for name, delay in (("a", 0.0), ("b", 0.2))]
        addresses = [Server(str(server.make_url("")), "") for server in servers]
        sides = [
            Side(name, one, "fish", "/v1/health", None, {"max_new_tokens": 7})
            for name, one in zip("ab", addresses, strict=True)
        ]
        found = await compare((sides[0], sides[1]), [2], 2, 2)
        for server in servers:
            await server.close()
        assert log == [*"aaaa", *"bbbb"] * 2
        first, second = found[2]
        assert first.failed == second.failed == 0
        assert first.audio_per_second > second.audio_per_second
        assert second.first_audio >= 0.2
        assert math.isnan(first.cpu_per_audio)
        assert first.health >= 0

    asyncio.run(test())


def test_medians_and_ratios() -> None:
    values = [Measured(1.0, 2.0, 3.0, 4.0, 1), Measured(3.0, 2.0, 1.0, 0.0, 0), Measured(2.0, 2.0, 2.0, 2.0, 2)]
    middle = medians(values)
    assert middle == Measured(2.0, 2.0, 2.0, 2.0, 3)
    assert [ratio for *_, ratio in rows(middle, Measured(1.0, 4.0, 2.0, 0.0, 0))] == pytest.approx(
        [2.0, 0.5, 1.0, math.nan], nan_ok=True
    )


def test_a_random_checkpoint_is_one_that_the_server_reads(tmp_path: Path) -> None:
    size = Size(64, 2, 1, 32, 96, 2, 1)
    parameters = write(size, tmp_path)
    config = load_model_config(tmp_path)
    assert (config.slow.dim, config.slow.n_layer, config.fast.n_layer) == (64, 2, 1)
    assert parameters > 2 * 64 * 96
    assert load_codec_config(tmp_path).sample_rate == 16000
    assert {path.name for path in tmp_path.iterdir()} >= {"model.safetensors", "codec.safetensors", "tokenizer.json"}
