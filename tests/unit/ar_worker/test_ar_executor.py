"""The executor through its step plans: greedy runs, ends, continuations and refusals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from ar_support import DATA, GREEDY, PAGE_SIZE, Driver, settings
from torch import Tensor

from ar_worker.rows import RowPolicy
from ar_worker.torch_executor import TorchExecutor
from common.messages import Array, Assign, Prefill, Sampling, StepPlan

Golden = Callable[[str, str], dict[str, Tensor]]
SAMPLING = Sampling(temperature=0.9, fast_temperature=0.7, top_p=0.9, top_k=40, seed=11)


def prompt_of(golden: Golden, case: str, name: str = "tiny") -> Array:
    prompt: Array = golden(name, "greedy")[f"{case}.prompt"].numpy()
    return prompt


@pytest.mark.parametrize("case", ["plain", "ref1", "unicode", "stop"])
def test_greedy_codes_equal_the_original(golden: Golden, tiny: Driver, case: str) -> None:
    frames = golden("tiny", "greedy")[f"{case}.frames"].numpy()
    codes, ended = tiny.generate(prompt_of(golden, case), GREEDY, frames.shape[1])
    assert codes.T.tolist() == frames.tolist()
    assert ended.tolist() == [0] * (len(ended) - 1) + [int(case == "stop")]


@pytest.mark.parametrize("native", [False, True])
def test_greedy_codes_equal_the_original_with_real_codebook_sizes(golden: Golden, native: bool) -> None:
    driver = Driver(TorchExecutor(DATA / "checkpoint_tiny4096", settings(native=native)), list(range(64)))
    for case in ("plain", "ref1", "unicode"):
        frames = golden("tiny4096", "greedy")[f"{case}.frames"].numpy()
        codes, _ = driver.generate(prompt_of(golden, case, "tiny4096"), GREEDY, frames.shape[1])
        assert codes.T.tolist() == frames.tolist()


def test_greedy_ignores_seed_and_fast_temperature(golden: Golden, tiny: Driver) -> None:
    prompt = prompt_of(golden, "plain")
    other = Sampling(temperature=0.0, fast_temperature=1.5, top_p=1.0, top_k=100, seed=99)
    want, _ = tiny.generate(prompt, GREEDY, 10)
    got, _ = tiny.generate(prompt, other, 10)
    assert got.tolist() == want.tolist()


def test_seed_decides_the_codes(golden: Golden, tiny: Driver) -> None:
    prompt = prompt_of(golden, "plain")
    runs = [tiny.generate(prompt, sampling, 6)[0] for sampling in (SAMPLING, SAMPLING)]
    assert runs[0].tolist() == runs[1].tolist()
    other = Sampling(**{name: getattr(SAMPLING, name) for name in SAMPLING.__struct_fields__} | {"seed": 2**80})
    assert tiny.generate(prompt, other, 6)[0].tolist() != runs[0].tolist()


def test_look_ahead_decode_after_the_end_leaves_no_trace(golden: Golden, tiny: Driver) -> None:
    prompt, turn = prompt_of(golden, "stop"), prompt_of(golden, "plain")[:, :20]
    length = prompt.shape[1]

    def conversation(look_ahead: int) -> tuple[list[list[int]], list[int]]:
        """To the end of a turn, some decodes too many, then the next turn over the end's position."""
        outputs = [tiny.step(assign={0: GREEDY}, prefill=[(0, 0, prompt, True)])]
        outputs += [tiny.step(decode={0: length + frame}) for frame in range(8)]
        assert [int(out.ended[0]) for out in outputs] == [0] * 8 + [1]
        garbage = [tiny.step(decode={0: length + 8 + extra}) for extra in range(look_ahead)]
        assert all(out.ended[0] == 1 for out in garbage)
        outputs += [tiny.step(prefill=[(0, length + 8, turn, True)])]
        outputs += [tiny.step(decode={0: length + 28 + frame}) for frame in range(5)]
        tiny.step(release=[0])
        return [out.codes[0].tolist() for out in outputs[9:]], [int(out.ended[0]) for out in outputs[9:]]

    assert conversation(0) == conversation(1) == conversation(3)


@pytest.mark.parametrize("drawn", [1, 2, 6, 15, 20])
def test_a_sequence_goes_on_elsewhere_as_if_nothing_had_happened(golden: Golden, tiny: Driver, drawn: int) -> None:
    """Its prompt and the frames drawn so far are prefilled; the window of the repetition rule goes with them."""
    prompt, frames = prompt_of(golden, "plain"), 24
    # With this seed the rule decides: an empty window would lead elsewhere behind frames 6, 15 and 20.
    sampling = Sampling(temperature=0.1, fast_temperature=0.3, top_p=0.9, top_k=30, seed=7)
    codes, ended = tiny.generate(prompt, sampling, frames)
    assert not ended.any()
    tokens = 524 + codes[:, 0].astype(np.int32)
    history = np.concatenate([prompt, np.concatenate([tokens[None, :drawn], codes[:drawn].T])], 1)
    first = tiny.step(
        assign={2: sampling},
        prefill=[(2, 0, history, True)],
        first_frame={2: drawn},
        recent={2: tokens[1:drawn].tolist()},
    )
    rest = [tiny.step(decode={2: history.shape[1] + frame}) for frame in range(frames - drawn - 1)]
    assert np.concatenate([out.codes for out in [first, *rest]]).tolist() == codes[drawn:].tolist()


def test_the_end_of_a_turn_and_the_first_frame_of_the_next_differ_in_noise(golden: Golden, tiny: Driver) -> None:
    """Noise depends on the number of draws: frames, and ends of turns."""

    def draw(frame: int, turn: int) -> list[int]:
        prompt = prompt_of(golden, "plain")
        work = {"assign": {0: SAMPLING}, "prefill": [(0, 0, prompt, True)], "first_frame": {0: frame}}
        drawn: list[int] = tiny.step(**work, turn=turn).codes[0].tolist()
        tiny.step(release=[0])
        return drawn

    assert draw(frame=9, turn=0) != draw(frame=9, turn=1) == draw(frame=10, turn=0) == draw(frame=8, turn=2)


def test_end_token_at_the_first_frame_is_an_end(golden: Golden, tiny: Driver) -> None:
    prompt, frames = prompt_of(golden, "stop"), golden("tiny", "greedy")["stop.frames"].numpy()
    tokens = golden("tiny", "greedy")["stop.tokens"].numpy()
    whole = np.concatenate([prompt, np.concatenate([tokens[None, :8], frames[:, :8]])], 1)
    out = tiny.step(assign={0: GREEDY}, prefill=[(0, 0, whole, True)])
    assert out.ended.tolist() == [1]


def test_rows_are_sampled_prefills_in_order_then_decodes(golden: Golden, tiny: Driver) -> None:
    prompts = [prompt_of(golden, case) for case in ("plain", "ref1", "unicode", "stop")]
    want = [golden("tiny", "greedy")[f"{case}.frames"].numpy().T for case in ("plain", "ref1", "unicode", "stop")]
    tiny.step(assign={3: GREEDY, 1: GREEDY}, prefill=[(3, 0, prompts[3], True), (1, 0, prompts[1], True)])
    out = tiny.step(
        assign={0: GREEDY, 2: GREEDY},
        prefill=[(2, 0, prompts[2], True), (0, 0, prompts[0][:, :PAGE_SIZE], False)],
        decode={1: prompts[1].shape[1], 3: prompts[3].shape[1]},
    )
    assert out.codes.tolist() == [want[2][0].tolist(), want[1][1].tolist(), want[3][1].tolist()]
    assert out.codes.dtype == np.int16
    assert out.ended.dtype == np.uint8


def test_warm_up_leaves_no_trace_and_memory_is_told(golden: Golden) -> None:
    executor = TorchExecutor(DATA / "checkpoint_tiny", settings())
    executor.warm_up()
    codes, _ = Driver(executor, list(range(64))).generate(prompt_of(golden, "plain"), GREEDY, 5)
    assert codes.T.tolist() == golden("tiny", "greedy")["plain.frames"][:, :5].tolist()
    assert executor.memory_bytes["kv"] == 3 * 2 * 2 * 65 * PAGE_SIZE * 32 * 4
    assert executor.memory_bytes["weights"] > 2e6


def test_bf16_runs_and_takes_half_the_memory(golden: Golden, tiny_executor: TorchExecutor) -> None:
    executor = TorchExecutor(DATA / "checkpoint_tiny", settings(dtype="bf16"))
    codes, _ = Driver(executor, list(range(64))).generate(prompt_of(golden, "plain"), SAMPLING, 4)
    assert codes.shape == (4, 10)
    assert executor.memory_bytes["kv"] * 2 == tiny_executor.memory_bytes["kv"]


BAD_PLANS = {
    "slot 4 of 4": {"assigned": [Assign(4, GREEDY)]},
    "slot -1 of 4": {"released": [-1]},
    "top_k 257": {"assigned": [Assign(0, Sampling(1.0, 1.0, 1.0, 257, 0))]},
    "not assigned": {"prefills": [Prefill(0, 0, 4, True)]},
    "has no page": {"assigned": [Assign(0, GREEDY)], "prefills": [Prefill(0, 0, 4, True)]},
    "for some of its 18 positions": {
        "assigned": [Assign(0, GREEDY)],
        "prefills": [Prefill(0, 14, 4, True)],
        "appends": [(0, 0, 5)],
    },
    "takes part twice": {"assigned": [Assign(0, GREEDY)], "prefills": [Prefill(0, 0, 4, False)], "decodes": [0]},
    "page appends beyond": {"assigned": [Assign(0, GREEDY)], "appends": [(0, 0, 64)]},
    "positions 0 to 0": {"assigned": [Assign(0, GREEDY)], "prefills": [Prefill(0, 0, 0, True)]},
    "prefill tokens, at most 512": {"assigned": [Assign(0, GREEDY)], "prefills": [Prefill(0, 0, 513, True)]},
    "a token id": {"assigned": [Assign(0, GREEDY)], "prefills": [Prefill(0, 0, 4, True)], "token": 832},
    "a code": {"assigned": [Assign(0, GREEDY)], "prefills": [Prefill(0, 0, 4, True)], "code": 256},
}


@pytest.mark.parametrize("message", BAD_PLANS)
def test_bad_plan_is_refused_and_changes_nothing(golden: Golden, tiny: Driver, message: str) -> None:
    bad = BAD_PLANS[message]
    tokens = sum(item.tokens for item in bad.get("prefills", []))  # type: ignore[attr-defined]
    prompt = np.zeros((11, tokens), np.int32)
    prompt[0], prompt[1:] = bad.get("token", 0), bad.get("code", 0)
    plan = StepPlan(0, bad.get("released", []), bad.get("assigned", []), bad.get("prefills", []))  # type: ignore[arg-type]
    decodes = np.array(bad.get("decodes", []), np.int32)
    appends = np.array(bad.get("appends", []), np.int32).reshape(-1, 3)
    case = prompt_of(golden, "plain")
    first = tiny.step(assign={1: GREEDY}, prefill=[(1, 0, case, True)])
    with pytest.raises(ValueError, match=message):
        tiny.executor.execute(plan, [prompt, decodes, appends])
    second = tiny.step(decode={1: case.shape[1]})
    frames = golden("tiny", "greedy")["plain.frames"][:, :2].T.tolist()
    assert [first.codes[0].tolist(), second.codes[0].tolist()] == frames


def test_arrays_that_do_not_fit_the_plan_are_refused(tiny: Driver) -> None:
    plan, none = StepPlan(0, [], [], []), np.zeros(0, np.int32)
    with pytest.raises(ValueError, match="arrays"):
        tiny.executor.execute(plan, [none])
    with pytest.raises(ValueError, match="shapes"):
        tiny.executor.execute(plan, [np.zeros((11, 3), np.int32), none, np.zeros((0, 3), np.int32)])


def test_step_without_rows_answers_with_none(tiny: Driver) -> None:
    out = tiny.step()
    assert out.codes.shape == (0, 10)
    assert out.ended.shape == (0,)
    assert out.duration >= 0


def test_tiled_products_equal_whole_ones() -> None:
    weight, x = torch.randn(48, 96), torch.randn(128, 48)
    torch.testing.assert_close(RowPolicy(64, 64).linear(x, weight), RowPolicy(4).linear(x, weight))
    assert RowPolicy(64, 64).bucket(65) == 128
    assert [RowPolicy(1).bucket(rows) for rows in (1, 3, 9, 33, 65)] == [1, 4, 16, 48, 128]
