"""Shared parts of the AR worker's tests: a model fed by hand, and a driver that plans steps for an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ar_worker.attention import causal_mask, fold_heads, unfold_heads
from ar_worker.executor import StepOutput
from ar_worker.model import DualAr
from ar_worker.ops import HeadNorm, qk_norm_rope
from ar_worker.rows import RowPolicy
from ar_worker.torch_executor import ExecutorSettings, Ticket, TorchExecutor
from ar_worker.weights import load_weights
from common.checkpoint import load_model_config
from common.messages import Array, Assign, Prefill, Sampling, StepPlan

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
GREEDY = Sampling(temperature=0.0, fast_temperature=0.0, top_p=0.8, top_k=30, seed=0)
PAGE_SIZE = 16


def settings(**changes: object) -> ExecutorSettings:
    values: dict[str, object] = {
        "device": "cpu",
        "dtype": "auto",
        "slots": 4,
        "pages": 64,
        "page_size": PAGE_SIZE,
        "max_prefill_tokens": 512,
        "threads": 1,
        "deterministic": False,
        "native": False,
    }
    return ExecutorSettings(**{**values, **changes})  # type: ignore[arg-type]


class HandFedModel:
    """One sequence through the model, without an executor: a pool with just its pages."""

    def __init__(self, name: str, dtype: torch.dtype = torch.float32) -> None:
        directory = DATA / f"checkpoint_{name}"
        self.config = load_model_config(directory)
        positions = min(self.config.max_seq_len, 256)
        weights = load_weights(directory, self.config, torch.device("cpu"), dtype)
        self.model = DualAr(self.config, weights, RowPolicy(1), positions)
        slow = self.config.slow
        self.pool = torch.zeros(slow.n_layer, 2, slow.n_kv_head, positions, slow.head_dim, dtype=dtype)

    def feed(self, frames: Tensor, start: int) -> Tensor:
        """Slow output [n, dim] for frames int64 [n, 11] at positions from ``start`` on."""
        positions = torch.arange(start, start + len(frames))
        return self.model.slow(self.model.embed(frames), positions, self._attend(positions))

    def _attend(self, positions: Tensor) -> Callable[[int, Tensor, HeadNorm], Tensor]:
        slow = self.config.slow
        mask = causal_mask(positions[None], self.pool.shape[3], slow.n_head // slow.n_kv_head, self.pool.dtype)

        def attend(layer: int, qkv: Tensor, norm: HeadNorm) -> Tensor:
            qk_norm_rope(qkv, slow.n_kv_head, norm)
            q, k, v = qkv.split((slow.n_head, slow.n_kv_head, slow.n_kv_head), 1)
            self.pool[layer, 0, :, positions], self.pool[layer, 1, :, positions] = k.transpose(0, 1), v.transpose(0, 1)
            folded = fold_heads(q, 1, slow.n_kv_head).reshape(1, slow.n_kv_head, -1, slow.head_dim)
            out = F.scaled_dot_product_attention(folded, *self.pool[layer, :, None], attn_mask=mask)
            return unfold_heads(out, len(q)) if len(q) > 1 else out.reshape(1, -1)

        return attend


class Driver:
    """Plans steps for an executor as a scheduler would; pages are given out in the order of ``free``."""

    def __init__(self, executor: TorchExecutor, pages: list[int]) -> None:
        self.executor, self.free = executor, pages
        self.owned: dict[int, list[int]] = {}

    def step(self, **work: Any) -> StepOutput:
        """One step, see :meth:`launch`, waited for."""
        return self.executor.resolve(self.launch(**work))

    def launch(
        self,
        *,
        release: list[int] | None = None,
        assign: dict[int, Sampling] | None = None,
        prefill: list[tuple[int, int, Array, bool]] | None = None,
        decode: dict[int, int] | None = None,
        first_frame: dict[int, int] | None = None,
        recent: dict[int, list[int]] | None = None,
        turn: int = 0,
    ) -> Ticket:
        """Launch a step. ``prefill``: (slot, start, prompt [11, n], sample); ``decode``: slot to the position it fills;
        ``first_frame``: slot to the number of the frame its prefill yields, where that is not 0; ``recent``: slot to
        the window of a turn that goes on; ``turn``: of all prefills."""
        assign, prefill, decode = assign or {}, prefill or [], decode or {}
        for slot in release or []:
            self.free += self.owned.pop(slot)
        ends = {slot: start + prompt.shape[1] for slot, start, prompt, _ in prefill}
        ends |= {slot: position + 1 for slot, position in decode.items()}
        appends = [row for slot, end in ends.items() for row in self._grow(slot, end)]
        plan = StepPlan(
            step=0,
            released=release or [],
            assigned=[Assign(slot, sampling) for slot, sampling in assign.items()],
            prefills=[
                Prefill(
                    slot,
                    start,
                    prompt.shape[1],
                    sample,
                    (first_frame or {}).get(slot, 0),
                    (recent or {}).get(slot),
                    turn,
                )
                for slot, start, prompt, sample in prefill
            ],
        )
        prompts = [prompt for _, _, prompt, _ in prefill] or [np.zeros((11, 0))]
        arrays = [np.concatenate(prompts, 1), np.array(list(decode)), np.array(appends).reshape(-1, 3)]
        return self.executor.launch(plan, [array.astype(np.int32) for array in arrays])

    def _grow(self, slot: int, end: int) -> Iterator[tuple[int, int, int]]:
        owned = self.owned.setdefault(slot, [])
        while len(owned) * PAGE_SIZE < end:
            owned.append(self.free.pop(0))
            yield slot, len(owned) - 1, owned[-1]

    def generate(self, prompt: Array, sampling: Sampling, frames: int, slot: int = 0) -> tuple[Array, Array]:
        """A whole sequence alone: codes [frames, 10] and ended [frames]; the slot is released again."""
        length = prompt.shape[1]
        outputs = [self.step(assign={slot: sampling}, prefill=[(slot, 0, prompt, True)])]
        outputs += [self.step(decode={slot: length + frame}) for frame in range(frames - 1)]
        self.step(release=[slot])
        return np.concatenate([out.codes for out in outputs]), np.concatenate([out.ended for out in outputs])
