"""pipecat's speech services for Fish Audio and OpenAI, in pipelines of their own."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.fish.tts import FishAudioTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.services.tts_service import TTSService
from pipecat.workers.runner import WorkerRunner
from scenarios import Heard, run

PATIENCE = 20.0  # seconds to wait for a turn to end


class Listener(FrameProcessor):
    """Hears all that comes down the pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.heard, self.rates, self.odd = Heard(), set(), 0
        self.errors: list[str] = []
        self.speaking, self.stopped = asyncio.Event(), asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.heard.add(frame.audio)
            self.rates.add(frame.sample_rate)
            self.odd += len(frame.audio) % 2
            self.speaking.set()
        elif isinstance(frame, TTSStoppedFrame):
            self.stopped.set()
        await self.push_frame(frame, direction)

    def told(self) -> dict[str, Any]:
        return {"rates": sorted(self.rates), "odd": self.odd, "errors": self.errors, **self.heard.told()}


async def talk(service: TTSService, rate: int, interrupt: bool, texts: list[str]) -> dict[str, Any]:
    """Each text is a turn. ``interrupt``: break in on all but the last."""
    listener = Listener()
    worker = PipelineWorker(
        Pipeline([service, listener]),
        params=PipelineParams(audio_out_sample_rate=rate),
        cancel_on_idle_timeout=False,
        enable_rtvi=False,
    )
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_pipeline_started(_worker: PipelineWorker, _frame: Frame) -> None:
        started.set()

    @service.event_handler("on_error")
    async def on_error(_service: TTSService, frame: ErrorFrame) -> None:
        listener.errors.append(frame.error)
        listener.stopped.set()

    async def speak() -> list[dict[str, Any]]:
        turns = []
        await asyncio.wait_for(started.wait(), PATIENCE)
        for number, text in enumerate(texts):
            listener.heard = Heard()
            listener.speaking.clear()
            listener.stopped.clear()
            await worker.queue_frame(TTSSpeakFrame(text))
            if interrupt and number < len(texts) - 1:
                await asyncio.wait_for(listener.speaking.wait(), PATIENCE)
                await worker.queue_frame(InterruptionFrame())
                await asyncio.sleep(0.5)
            else:
                await asyncio.wait_for(listener.stopped.wait(), PATIENCE)
            turns.append(listener.told())
        await worker.queue_frame(EndFrame())
        return turns

    runner = WorkerRunner()
    await runner.add_workers(worker)
    turns, _ = await asyncio.gather(speak(), runner.run())
    return {"turns": turns}


def fish(
    base: str, key: str, rate: int, interrupt: bool = False, voice: str | None = None, texts: list[str] | None = None
) -> dict[str, Any]:
    async def speak() -> dict[str, Any]:
        service = FishAudioTTSService(api_key=key, settings=FishAudioTTSService.Settings(voice=voice))
        service._base_url = base.replace("http", "ws", 1) + "/v1/tts/live"  # there is no public way
        return await talk(service, rate, interrupt, texts or ["Hello there.", "And once more."])

    return asyncio.run(speak())


def openai(base: str, key: str, voice: str = "alloy") -> dict[str, Any]:
    async def speak() -> dict[str, Any]:
        settings = OpenAITTSService.Settings(voice=voice)
        service = OpenAITTSService(api_key=key, base_url=f"{base}/v1", settings=settings)
        return await talk(service, 24000, False, ["Hello there.", "And once more."])

    return asyncio.run(speak())


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="DEBUG")
    run(fish, openai)
