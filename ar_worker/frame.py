"""Drawing one frame: the main token with the repetition rule, then nine codes by the fast stack."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ar_worker.model import DualAr
from ar_worker.sampling import Filter, Uniforms, draw, rank


class FrameParams(NamedTuple):
    """How to draw a frame, one row each: the main token, once more where it repeats itself, and the nine codes."""

    slow: Filter
    again: Filter
    fast: Filter
    window: Tensor  # int64 [B, 10], recent main tokens
    checked: Tensor  # bool [B], whether the window is consulted
    ranks: int  # candidates to look at, see ranks_needed


def draw_frame(model: DualAr, x: Tensor, params: FrameParams, uniforms: Uniforms) -> Tensor:
    """One frame for each row of slow output x [B, dim]: int64 [B, 11], the main token and its ten codes.

    Code 0 is the main token less the first semantic id, clamped to the codebook, so 0 for the end token. The other
    codes are drawn from the whole codebook, even where the codec knows fewer.
    """
    logits, hidden = model.head(x)
    token = draw_token(model, logits, params, uniforms)
    config = model.config
    code = (token - config.semantic_begin_id).clamp(0, config.codebook_size - 1)
    attend = model.frame_attention(x.shape[0])
    columns = [token, code]
    logits = model.fast_first(hidden, code, attend)
    for codebook in range(1, config.num_codebooks):
        ranked = rank(logits, params.ranks)
        code = draw(ranked, params.fast, uniforms(ranked.ids, codebook, 0))
        columns.append(code)
        if codebook < config.num_codebooks - 1:
            logits = model.fast_next(code, attend)
    return torch.stack(columns, 1)


def draw_token(model: DualAr, logits: Tensor, params: FrameParams, uniforms: Uniforms) -> Tensor:
    """The main token of each row, int64 [B], from candidate logits [B, n].

    A semantic token that stands in the window is replaced by a second draw, which is not checked.
    """
    ranked = rank(logits, params.ranks)
    ranked = ranked._replace(ids=model.candidates.take(ranked.ids))
    token = draw(ranked, params.slow, uniforms(ranked.ids, 0, 0))
    other = draw(ranked, params.again, uniforms(ranked.ids, 0, 1))
    repeated = (params.window == token[:, None]).any(1) & params.checked & (token != model.config.im_end_id)
    return torch.where(repeated, other, token)
