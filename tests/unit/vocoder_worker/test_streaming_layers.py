"""Every causal layer: streamed in any way, each row equals its whole alone.

In float64, where what is left is no rounding: random layers amplify that of float32 beyond any tight bound.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from common.checkpoint import WindowTransformerConfig
from vocoder_worker.layers import (
    CausalConv1d,
    CausalConvTranspose1d,
    Chain,
    ConvNeXtBlock,
    ResidualUnit,
    Snake,
    Stage,
    residual_units,
)
from vocoder_worker.streaming import StreamState
from vocoder_worker.transformer import WindowTransformer

CPU = torch.device("cpu")
SLOTS = 4
CHANNELS = 4
WINDOW = WindowTransformerConfig(n_layer=2, dim=CHANNELS, n_head=2, head_dim=2, intermediate_size=6, window_size=5)

LAYERS = {
    "conv": lambda: CausalConv1d(CHANNELS, 3, 7),
    "dilated conv": lambda: CausalConv1d(CHANNELS, CHANNELS, 7, dilation=9),
    "pointwise conv": lambda: CausalConv1d(CHANNELS, 2, 1),
    "depthwise conv": lambda: CausalConv1d(CHANNELS, CHANNELS, 7, groups=CHANNELS),
    "strided conv": lambda: CausalConv1d(CHANNELS, 3, 12, 6),
    "strided conv without overlap": lambda: CausalConv1d(CHANNELS, 3, 2, 2),
    "transposed conv": lambda: CausalConvTranspose1d(CHANNELS, 3, 10, 5),
    "transposed conv of odd kernel": lambda: CausalConvTranspose1d(CHANNELS, 3, 8, 3),
    "transposed conv without overlap": lambda: CausalConvTranspose1d(CHANNELS, 3, 2, 2),
    "residual unit": lambda: ResidualUnit(CHANNELS, 3),
    "ConvNeXt": lambda: ConvNeXtBlock(CHANNELS, 2),
    "window transformer": lambda: WindowTransformer(WINDOW, 10000.0, 1e-5),
    "decoder stage": lambda: Stage(Snake(CHANNELS), CausalConvTranspose1d(CHANNELS, 3, 8, 4), *residual_units(3)),
    "stack of rates": lambda: Chain(
        CausalConvTranspose1d(CHANNELS, CHANNELS, 4, 2), WindowTransformer(WINDOW, 10000.0, 1e-5), ResidualUnit(4, 9)
    ),
}
STEPS_PER_FRAME = 6  # a multiple of every stride above

frames = st.integers(1, 9)
schedules = st.lists(st.dictionaries(st.integers(0, SLOTS - 1), frames, min_size=1), min_size=1, max_size=6)


@pytest.fixture(autouse=True, scope="module")
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def randomised(layer: nn.Module, generator: torch.Generator) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.normal_(parameter, 0, 0.4, generator)
    return layer.requires_grad_(False)


def whole(layer, x):
    return layer(x[None], StreamState(layer, 1, CPU).batch([0], [x.shape[1] // STEPS_PER_FRAME]))[0]


def call(layer, state, chunks, generator):
    """Run one batch of chunks [C, T] by slot, with garbage for padding."""
    lengths = [chunk.shape[1] for chunk in chunks.values()]
    x = 10 * torch.randn(len(chunks), CHANNELS, max(lengths), generator=generator)
    for row, chunk in zip(x, chunks.values(), strict=True):
        row[:, : chunk.shape[1]] = chunk
    y = layer(x, state.batch(list(chunks), [length // STEPS_PER_FRAME for length in lengths]))
    rate = y.shape[2] / x.shape[2]
    ends = [int(length * rate) for length in lengths]
    return {slot: row[:, :end] for slot, row, end in zip(chunks, y, ends, strict=True)}


def stream(layer, state, schedule, generator):
    """Random sound of each slot as the schedule (frames by slot, call after call) cuts it, and what came of it."""
    inputs = {slot: [] for slot in range(SLOTS)}
    outputs = {slot: [] for slot in range(SLOTS)}
    for frames_by_slot in schedule:
        chunks = {
            slot: torch.randn(CHANNELS, n * STEPS_PER_FRAME, generator=generator) for slot, n in frames_by_slot.items()
        }
        for slot, y in call(layer, state, chunks, generator).items():
            inputs[slot].append(chunks[slot])
            outputs[slot].append(y)
    return {slot: (torch.cat(inputs[slot], 1), torch.cat(outputs[slot], 1)) for slot in inputs if inputs[slot]}


def assert_equals_whole(layer, streams):
    for x, y in streams.values():
        torch.testing.assert_close(y, whole(layer, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LAYERS)
@settings(max_examples=12, deadline=None)
@given(schedule=schedules, seed=st.integers(0, 2**31))
def test_chunks_equal_the_whole_for_any_split_mates_pauses_and_padding(name, schedule, seed):
    generator = torch.Generator().manual_seed(seed)
    layer = randomised(LAYERS[name](), generator)
    assert_equals_whole(layer, stream(layer, StreamState(layer, SLOTS, CPU), schedule, generator))


@pytest.mark.parametrize("name", ["dilated conv", "transposed conv", "window transformer", "stack of rates"])
@settings(max_examples=8, deadline=None)
@given(before=schedules, after=schedules, seed=st.integers(0, 2**31))
def test_a_reset_slot_knows_nothing_of_its_last_stream(name, before, after, seed):
    generator = torch.Generator().manual_seed(seed)
    layer = randomised(LAYERS[name](), generator)
    state = StreamState(layer, SLOTS, CPU)
    stream(layer, state, before, generator)
    for tensor in state.tensors.values():
        tensor[0] = torch.nan  # the worst that a stream can leave behind
    state.reset(range(SLOTS))
    assert_equals_whole(layer, stream(layer, state, after, generator))


def test_reset_of_one_slot_leaves_the_others_where_they_are():
    generator = torch.Generator().manual_seed(1)
    layer = randomised(LAYERS["stack of rates"](), generator)
    state = StreamState(layer, SLOTS, CPU)
    first = stream(layer, state, [{0: 3, 2: 4}], generator)
    state.reset([0])
    second = stream(layer, state, [{2: 2, 0: 2}], generator)
    resumed = tuple(torch.cat(parts, 1) for parts in zip(first[2], second[2], strict=True))
    assert_equals_whole(layer, {0: second[0], 2: resumed})


def test_a_call_leaves_the_state_of_absent_slots_untouched():
    generator = torch.Generator().manual_seed(2)
    layer = randomised(LAYERS["stack of rates"](), generator)
    state = StreamState(layer, SLOTS, CPU)
    stream(layer, state, [dict.fromkeys(range(SLOTS), 3)], generator)
    before = [tensor[[1, 3]].clone() for tensor in state.tensors.values()]
    stream(layer, state, [{2: 2, 0: 5}], generator)
    for tensor, kept in zip(state.tensors.values(), before, strict=True):
        assert torch.equal(tensor[[1, 3]], kept)


def test_the_window_counts_the_position_itself():
    generator = torch.Generator().manual_seed(3)
    config = WindowTransformerConfig(n_layer=1, dim=4, n_head=2, head_dim=2, intermediate_size=6, window_size=5)
    layer = randomised(WindowTransformer(config, 10000.0, 1e-5), generator)
    x = torch.randn(4, 2 * STEPS_PER_FRAME, generator=generator)
    changed = x.clone()
    changed[:, 2] += 1
    differs = (whole(layer, x) != whole(layer, changed)).any(0)
    assert differs.nonzero().flatten().tolist() == [2, 3, 4, 5, 6]
