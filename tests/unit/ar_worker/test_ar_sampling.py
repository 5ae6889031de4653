"""Filter, draw and noise."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from ar_support import DATA, PAGE_SIZE, HandFedModel
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ar_worker.device_state import DeviceState, FrameRows
from ar_worker.frame import draw_frame
from ar_worker.sampling import Filter, Noise, draw, mixed_seed, rank, rank_limits, ranks_needed, weights
from ar_worker.slot_table import Limits
from common.messages import Assign, Sampling

Golden = Callable[[str, str], dict[str, Tensor]]
TOLERANCE = 1e-6
TAIL = 1e-3  # at top_p 1 it is up to the rounding of the running sum whether the last candidates are dropped
SLOT = torch.tensor([0])


def filter_of(temperature: float | Tensor, top_p: float, top_k: int) -> Filter:
    return Filter(temperature, rank_limits(torch.tensor([[top_p]]), torch.tensor([[top_k]]), 5000))


def filtered(logits: Tensor, temperature: float, top_p: float, top_k: int) -> Tensor:
    ranked = rank(logits[None], logits.shape[-1])
    kept = weights(ranked, filter_of(max(temperature, 1e-5), top_p, top_k))
    return torch.zeros(1, logits.shape[-1]).scatter_(1, ranked.ids, kept / kept.sum())[0]


@pytest.mark.parametrize("name", ["tiny", "tiny4096"])
def test_filter_matches_the_original(golden: Golden, name: str) -> None:
    data = golden(name, "sampling")
    for case in json.loads((DATA / name / "sampling.json").read_bytes())["cases"]:
        logits, want = data[case["logits"]], data[case["key"]]
        candidates = logits.isfinite()
        got = filtered(logits[candidates], case["temperature"], case["top_p"], case["top_k"])
        tolerance = TAIL if case["top_p"] == 1 else TOLERANCE
        torch.testing.assert_close(got, want[candidates], rtol=0, atol=tolerance)


def test_filter_matches_the_second_set() -> None:
    data = np.load(DATA / "long" / "sampler_golden.npz")
    for logits, (temperature, top_p, top_k), want in zip(data["logits"], data["params"], data["probs"], strict=True):
        got = filtered(torch.from_numpy(logits), float(temperature), float(top_p), int(top_k))
        torch.testing.assert_close(got, torch.from_numpy(want), rtol=0, atol=TAIL if top_p == 1 else TOLERANCE)


class Replay:
    """The uniform numbers the original drew in one frame."""

    def __init__(self, slow: Tensor, fast: Tensor, first_id: int) -> None:
        self.slow, self.fast, self.first_id = slow, fast, first_id

    def main(self, ids: Tensor) -> Tensor:
        return self.slow[:, (ids - self.first_id).clamp(0, self.slow.shape[1] - 1)].transpose(0, 1)

    def code(self, ids: Tensor, codebook: int) -> Tensor:
        return self.fast[codebook - 1][ids]


@pytest.mark.parametrize(("name", "case"), [("tiny", "t08"), ("tiny", "t03"), ("tiny4096", "t08")])
def test_sampled_run_is_replayed(golden: Golden, name: str, case: str) -> None:
    data, fed = golden(name, "sampled"), HandFedModel(name)
    info = json.loads((DATA / name / "sampled.json").read_bytes())["cases"][case]
    sampling = Sampling(info["temperature"], info["temperature"], info["top_p"], info["top_k"], seed=0)
    state = DeviceState(Limits(1, 4, PAGE_SIZE, 64, fed.config), torch.zeros(2, fed.config.slow.dim))
    state.assign([Assign(0, sampling)], torch.from_numpy)()
    slow, fast, prompt = data[f"{case}.slow_uniform"], data[f"{case}.fast_uniform"], data[f"{case}.prompt"].long().T
    first_id = 0 if slow.shape[-1] == fed.config.vocab_size else fed.config.semantic_begin_id
    x, tokens, codes = fed.feed(prompt, 0)[-1:], [], []
    for frame in range(info["frames"]):
        rows = FrameRows(SLOT, torch.ones(1, 2, dtype=torch.int64), torch.tensor([False]), torch.tensor([frame == 0]))
        taken = state.take(SLOT)
        params = state.params(rows, taken, ranks_needed(sampling.top_k))
        drawn = draw_frame(fed.model, x, params, Replay(slow[frame], fast[frame], first_id))
        drawn = state.record(rows, taken, drawn)
        tokens.append(drawn[0, 0])
        codes.append(drawn[0, 1:])
        x = fed.feed(drawn, len(prompt) + frame)
    assert torch.stack(tokens).tolist() == data[f"{case}.tokens"].tolist()
    assert torch.stack(codes, 1).tolist() == data[f"{case}.frames"].tolist()


@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([16, 32, 64, 256]))
def test_draw_depends_on_neither_neighbours_nor_surplus_ranks(seed: int, rows: int, ranks: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, 300, generator=generator) * 3).round(decimals=1)  # with many ties
    seeds, frames = torch.randint(-(2**62), 2**62, (2, rows), generator=generator)
    params = filter_of(torch.rand(rows, 1, generator=generator) + 0.1, 0.9, 12)

    def drawn(logits: Tensor, noise: Noise, params: Filter, ranks: int) -> Tensor:
        ranked = rank(logits, ranks)
        return draw(ranked, params, noise.code(ranked.ids, 3))

    together = drawn(logits, Noise(seeds, frames, 10), params, ranks)
    for row in (0, rows - 1):
        own = slice(row, row + 1)
        temperature = params.temperature[own]  # type: ignore[index]
        alone = drawn(logits[own], Noise(seeds[own], frames[own], 10), filter_of(temperature, 0.9, 12), 16)
        assert alone.tolist() == together[own].tolist()


def test_noise_is_uniform_and_never_0_or_1() -> None:
    ids = torch.arange(4096)[None]
    values = torch.cat([Noise(torch.tensor([seed]), torch.tensor([7]), 10).code(ids, 2) for seed in range(50)])
    assert 0 < values.min() <= values.max() < 1
    counts = torch.histc(values, 64, 0, 1)
    expected = values.numel() / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi square, 63 degrees of freedom: beyond 1 in 10^5


def test_noise_differs_by_seed_frame_codebook_draw_and_id() -> None:
    def noise(seed: int, frame: int) -> Noise:
        return Noise(torch.tensor([mixed_seed(seed)]), torch.tensor([frame]), 10)

    ids = torch.arange(1000)[None]
    streams = [*noise(1, 5).main(ids)[0], noise(2, 5).main(ids)[0, 0], noise(1, 6).main(ids)[0, 0]]
    streams.append(noise(1, 5).code(ids, 1)[0])
    correlations = torch.corrcoef(torch.stack([*streams, streams[0].roll(1)])) - torch.eye(6)
    assert correlations.abs().max() < 0.13  # 4 standard deviations


def test_draws_follow_the_filtered_probabilities() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -9.0])
    n = 20000
    ranked = rank(logits.expand(n, -1), 16)
    noise = Noise(torch.full((n,), 3), torch.arange(n), 10)
    got = draw(ranked, filter_of(0.7, 1.0, 4), noise.code(ranked.ids, 1)).bincount(minlength=5) / n
    torch.testing.assert_close(got, filtered(logits, 0.7, 1.0, 4), rtol=0, atol=0.015)


def test_noise_is_the_documented_hash() -> None:
    """Written out in integers: the same numbers must come on every device, today and tomorrow."""
    mask, golden = (1 << 64) - 1, 0x9E3779B97F4A7C15

    def mix(x: int) -> int:
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = ((x ^ (x >> shift)) * factor) & mask
        return x

    for seed, frame, codebook, number, token in [(0, 0, 0, 0, 0), (2**80 + 5, 70, 0, 1, 583), (-3, 9, 4, 0, 4095)]:
        row = mix((mix((seed + golden) & mask) + frame * golden) & mask)
        key = mix((row + (codebook * 2 + number + 1) * golden) & mask)
        want = ((mix((key + token * golden) & mask) >> 12) + 0.5) * 2.0**-52
        noise = Noise(torch.tensor([mixed_seed(seed)]), torch.tensor([frame]), 10)
        ids = torch.tensor([[token]])
        got = noise.code(ids, codebook) if codebook else noise.main(ids)[:, number]
        assert got.item() == want
