"""The frame: a slow step, the main token with the repetition rule, nine codes by the fast stack, the record."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ar_worker.device_state import DeviceState, FrameRows
from ar_worker.model import Attend, DualAr, FrameAttention
from ar_worker.sampling import FrameParams, Noise, Uniforms


def decode_frame(
    model: DualAr,
    state: DeviceState,
    rows: FrameRows,
    ranks: int,
    attention: Callable[[Tensor], Attend] | None,
    fast: FrameAttention,
) -> Tensor:
    """The next frame of each row, int64 [B, 11], recorded in the state.

    Args:
        attention: makes the slow step's attention from the rows' positions int64 [B]; None if every row is drawn from
            a prefill's output.
        fast: attention of the fast stack, of the rows' number.
    """
    taken = state.take(rows.slots)
    x = state.hidden.index_select(0, rows.slots)
    if attention is not None:
        positions = state.positions(taken)
        slow = model.slow(model.embed(taken.last), positions, attention(positions))
        x = torch.where(rows.prefilled[:, None], x, slow)
    noise = Noise(taken.seed, taken.frame, model.config.num_codebooks)
    drawn = draw_frame(model, x, state.params(rows, taken, ranks), noise, fast)
    return state.record(rows, taken, drawn)


def draw_frame(
    model: DualAr, x: Tensor, params: FrameParams, uniforms: Uniforms, attend: FrameAttention | None = None
) -> Tensor:
    """One frame for each row of slow output x [B, dim]: int64 [B, 11], the main token and its ten codes.

    Code 0 is the main token less the first semantic id, clamped to the codebook, so 0 for the end token. The other
    codes are drawn from the whole codebook, even where the codec knows fewer.
    """
    logits, hidden = model.head(x)
    config, ops = model.config, model.ops
    token = ops.draw_token(logits, model.candidates, config.im_end_id, params, uniforms)
    code = (token - config.semantic_begin_id).clamp_(0, config.codebook_size - 1)
    attend = attend or model.frame_attention(x.shape[0])
    attend.restart()
    columns = [token, code]
    logits = model.fast_first(hidden, code, attend)
    for codebook in range(1, config.num_codebooks):
        code = ops.draw_code(logits, codebook, params, uniforms)
        columns.append(code)
        if codebook < config.num_codebooks - 1:
            logits = model.fast_next(code, attend)
    return torch.stack(columns, 1)
