"""A speech server for the command to talk to: it answers as it is told, from a thread of its own."""

from __future__ import annotations

import asyncio
import io
import struct
import threading
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web
from click.testing import CliRunner, Result

from deploy.cli import main

RATE = 16_000


def wav_head(rate: int = RATE, *, extra: bytes = b"", size: int = 0xFFFFFFFF) -> bytes:
    """The head of a streamed WAV file, with other chunks before the sound if wanted."""
    layout = struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16)
    return b"RIFF" + struct.pack("<I", size) + b"WAVEfmt " + layout + extra + b"data" + struct.pack("<I", size)


def whole_wav(seconds: float, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, rate, 0, "NONE", ""))
        writer.writeframes(bytes(2 * int(seconds * rate)))
    return file.getvalue()


class FakeServer:
    """``speech``: pieces of each reply and pauses (float, seconds) between them. Remembers what it was asked."""

    def __init__(self) -> None:
        self.address = ""
        self.speech: list[bytes | float] = [wav_head(), bytes(RATE), bytes(RATE)]
        self.headers = {"Content-Type": "audio/wav", "X-Seed": "7", "X-Sample-Rate": str(RATE)}
        self.status, self.error = 200, {"message": "no"}
        self.breaks_off = False
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.metrics = [""]  # what /metrics says, one after another; the last for good
        self.under_way = self.most_under_way = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/tts", self._speak)
        app.router.add_post("/v1/audio/speech", self._speak)
        app.router.add_route("*", "/v1/references/{what}", self._references)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        self.paths.append(request.path)
        self.keys.append(request.headers.get("Authorization"))
        if self.status != 200:
            return web.json_response(self.error, status=self.status)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            return await self._stream(request)
        finally:
            self.under_way -= 1

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=self.headers)
        await response.prepare(request)
        for part in self.speech:
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                await response.write(part)
        if self.breaks_off and request.transport is not None:
            request.transport.abort()
        return response

    async def _references(self, request: web.Request) -> web.Response:
        what = request.match_info["what"]
        if request.content_type == "multipart/form-data":
            form = await request.post()
            audio = form["audio"]
            assert isinstance(audio, web.FileField)
            asked = {"id": form["id"], "text": form["text"], "audio": audio.file.read()}
        else:
            asked = await request.json() if request.can_read_body else {}
        self.asked.append({"what": what, "method": request.method, **asked})
        if self.status != 200:
            return web.json_response(self.error, status=self.status)
        return web.json_response({"success": True, "message": f"{what} done", "reference_ids": ["anna", "bert"]})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self.metrics.pop(0) if len(self.metrics) > 1 else self.metrics[0])


@contextmanager
def serving() -> Iterator[FakeServer]:
    server = FakeServer()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(server.app(), handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def shoal(server: FakeServer | None, *arguments: str, **options: Any) -> Result:
    """Run the command in this process."""
    environment = {"SHOAL_SERVER": server.address if server else "", "COLUMNS": "120"}
    return CliRunner().invoke(main, list(arguments), env=environment, **options)
