"""Encoding of a reference clip in bounded spans."""

from __future__ import annotations

import numpy as np
import torch

from common.checkpoint import NUM_CODEBOOKS
from common.messages import Array
from vocoder_worker.codec import CodecEncoder
from vocoder_worker.streaming import StreamState


class TorchEncodeJob:
    """One clip's encoding. Its state is separate, so jobs and decode calls may alternate freely.

    The encoder is causal, so spans with kept state give the codes of the whole clip at once.
    """

    def __init__(self, encoder: CodecEncoder, samples: Array, hop: int, span: int, device: torch.device) -> None:
        """``span``: the most frames of ``hop`` samples that one :meth:`advance` encodes."""
        if samples.ndim != 1 or not len(samples):
            raise ValueError(f"a clip is float32 [samples], at least one, not {samples.shape}")
        self._frames = -(-len(samples) // hop)
        padded = np.zeros(self._frames * hop, np.float32)
        padded[: len(samples)] = samples
        self._sound = padded.reshape(self._frames, hop)
        self._encoder, self._span, self._device = encoder, span, device
        self._state = StreamState(encoder, 1, device)
        self._codes = np.empty((NUM_CODEBOOKS, self._frames), np.int16)
        self._done = 0

    @torch.inference_mode()
    def advance(self) -> bool:
        """Encode the next span and return whether the whole clip is encoded."""
        end = min(self._done + self._span, self._frames)
        if end > self._done:
            sound = torch.from_numpy(self._sound[self._done : end].reshape(1, 1, -1)).to(self._device)
            codes = self._encoder(sound, self._state.batch([0], [end - self._done]))
            self._codes[:, self._done : end] = codes[0].cpu().numpy()
            self._done = end
        return self._done == self._frames

    @property
    def codes(self) -> Array:
        """Return the codes so far, int16 [10, frames]."""
        return self._codes[:, : self._done]
