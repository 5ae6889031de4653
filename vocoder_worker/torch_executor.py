"""Executor that runs the codec with torch, on the CPU or a CUDA device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from common.checkpoint import NUM_CODEBOOKS, load_codec_config
from common.messages import Array, DecodeItem
from vocoder_worker.encode_job import TorchEncodeJob
from vocoder_worker.executor import DecodeOutput
from vocoder_worker.grouping import batches
from vocoder_worker.streaming import StreamState
from vocoder_worker.weights import load_decoder, load_encoder, read_weights

ENCODE_SPAN = 8
"""Frames per span of an encode job: it takes about as long as a decode call of as many frames."""


@dataclass(frozen=True)
class ExecutorSettings:
    """``device`` is "auto" (CUDA where there is one), "cpu" or "cuda[:n]"; ``threads`` are those of one CPU operator.

    ``max_frames_per_call`` bounds the frames that one pass through the codec computes, and with them its memory; a
    larger call takes several passes.
    """

    device: str = "auto"
    slots: int = 64
    threads: int = 1
    max_frames_per_call: int = 128


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def _use_full_precision() -> None:
    """Turn TF32 off in convolutions and products: with it, chunks would not equal the whole."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


class TorchExecutor:
    """Streaming decode and encoding in fp32. See :class:`vocoder_worker.executor.Executor`."""

    def __init__(self, directory: Path, settings: ExecutorSettings) -> None:
        """Load the codec of a checkpoint directory.

        Raises:
            CheckpointError: the codec's config or weights can't be used.
        """
        torch.set_num_threads(settings.threads)
        _use_full_precision()
        config = load_codec_config(directory)
        stored = read_weights(directory)
        self.device = _device(settings.device)
        self.decoder = load_decoder(stored, config, self.device)
        self.encoder = load_encoder(stored, config, self.device)
        self.sample_rate, self.hop, self.slots = config.sample_rate, config.hop, settings.slots
        self._limit = settings.max_frames_per_call
        self._state = StreamState(self.decoder, settings.slots, self.device)

    @property
    def weight_bytes(self) -> int:
        halves = (self.decoder, self.encoder)
        return sum(tensor.nbytes for half in halves for tensor in (*half.parameters(), *half.buffers()))

    @property
    def state_bytes(self) -> int:
        return self._state.nbytes

    def warm_up(self) -> None:
        """Run calls of common sizes, so that the first request does not pay for their set-up. Resets all slots."""
        for frames in (1, 2, 4, 8):
            codes = np.zeros((frames, NUM_CODEBOOKS), np.int16)
            self.decode([DecodeItem("", "", slot=0, first=0, frames=frames, reset=True)], codes)
        self.start_encode(np.zeros(self.hop, np.float32)).advance()
        with torch.inference_mode():
            self._state.reset(range(self.slots))

    @torch.inference_mode()
    def decode(self, items: Sequence[DecodeItem], codes: Array) -> DecodeOutput:
        """See :meth:`vocoder_worker.executor.Executor.decode`."""
        started = time.perf_counter()
        self._check(items, codes)
        self._state.reset([item.slot for item in items if item.reset])
        rows = self.decoder.table_rows(codes)
        frames = [item.frames for item in items]
        starts = np.cumsum(frames) - frames
        sounds: list[list[Array]] = [[] for _ in items]
        computed = 0
        for group in batches(frames, self._limit):
            computed += len(group) * max(piece.frames for piece in group)
            slots = [items[piece.item].slot for piece in group]
            spans = [rows[starts[piece.item] + piece.first :][: piece.frames] for piece in group]
            for piece, sound in zip(group, self._run(slots, spans), strict=True):
                sounds[piece.item].append(sound)
        joined = [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in sounds]
        return DecodeOutput(joined, time.perf_counter() - started, computed - sum(frames))

    def start_encode(self, samples: Array) -> TorchEncodeJob:
        """See :meth:`vocoder_worker.executor.Executor.start_encode`."""
        return TorchEncodeJob(self.encoder, samples, self.hop, ENCODE_SPAN, self.device)

    def _check(self, items: Sequence[DecodeItem], codes: Array) -> None:
        slots = [item.slot for item in items]
        if len(set(slots)) < len(slots):
            raise ValueError(f"a call names a slot twice: {sorted(slots)}")
        for item in items:
            if not 0 <= item.slot < self.slots:
                raise ValueError(f"slot {item.slot} of {item.request!r} is not one of {self.slots}")
            if item.frames < 1:
                raise ValueError(f"{item.request!r} has {item.frames} frames to decode")
        total = sum(item.frames for item in items)
        if codes.shape != (total, NUM_CODEBOOKS):
            raise ValueError(f"codes are {codes.shape}, not {(total, NUM_CODEBOOKS)}")

    def _run(self, slots: list[int], spans: list[Array]) -> list[Array]:
        """Run one batch through the codec: table rows int64 [frames, 10] of each slot to its audio."""
        batch = self._state.batch(slots, [len(span) for span in spans])
        padded = np.zeros((len(spans), batch.width, NUM_CODEBOOKS), np.int64)
        for row, span in zip(padded, spans, strict=True):
            row[: len(span)] = span
        wave = self.decoder(torch.from_numpy(padded).to(self.device), batch).cpu().numpy()
        return [row[: len(span) * self.hop] for row, span in zip(wave, spans, strict=True)]
