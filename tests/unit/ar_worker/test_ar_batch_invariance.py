"""The law: a sequence's codes are bit-equal alone and in any company, however its prompt is cut and its pages lie."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
import torch
from ar_support import DATA, PAGE_SIZE, ROOT, Driver, HandFedModel, settings
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ar_worker.torch_executor import TorchExecutor
from common.checkpoint import ModelConfig, load_model_config
from common.messages import Array, Sampling

SLOTS, PAGES = 6, 80
CHECKPOINTS = {"tiny": DATA / "checkpoint_tiny", "mini": ROOT / "models" / "mini"}


@cache
def hand_fed(name: str) -> HandFedModel:
    return HandFedModel(name)


@cache
def executor(name: str, threads: int, native: bool) -> TorchExecutor:
    made = TorchExecutor(CHECKPOINTS[name], settings(slots=SLOTS, pages=PAGES, threads=threads, native=native))
    assert (made.frame_path == "native") == native
    return made


@dataclass
class Sequence:
    """A request: turns of prompt, each followed by some frames."""

    sampling: Sampling
    turns: list[tuple[Array, int]]
    codes: list[list[int]] = field(default_factory=list)
    position: int = 0  # filled
    turn: int = 0
    prefilled: int = 0  # of this turn's prompt
    frames: int = 0  # of this turn
    cache: torch.Tensor | None = None  # keys and values of all positions, taken at the end

    @property
    def done(self) -> bool:
        return self.turn == len(self.turns)


def make_sequence(rng: random.Random, config: ModelConfig) -> Sequence:
    def turn(length: int) -> Array:
        tokens = np.array([rng.randrange(config.semantic_begin_id) for _ in range(length)])
        codes = np.zeros((10, length), int)
        for column in range(length):
            if rng.random() < 0.3:
                codes[:, column] = [rng.randrange(config.codebook_size) for _ in range(10)]
                tokens[column] = config.semantic_begin_id + codes[0, column]
        return np.concatenate([tokens[None], codes])

    temperature = rng.choice([0.0, 0.3, 0.9, 1.2])
    sampling = Sampling(
        temperature, rng.choice([0.1, 0.9]), rng.choice([0.8, 1.0]), rng.choice([1, 30, 200]), rng.getrandbits(64)
    )
    turns = [(turn(rng.randint(1, 70)), rng.randint(1, 8)) for _ in range(rng.randint(1, 2))]
    return Sequence(sampling, turns)


def advance(sequence: Sequence, slot: int, rng: random.Random, whole: bool, step: dict[str, object]) -> str | None:
    """Add the sequence's next piece of work to a step; returns which kind of row it yields."""
    prompt, _ = sequence.turns[sequence.turn]
    left = prompt.shape[1] - sequence.prefilled
    if left == 0:
        step["decode"][slot] = sequence.position  # type: ignore[index]
        sequence.position += 1
        return "decode"
    count = left
    if not whole and rng.random() < 0.7:  # cut at a page boundary, if there is one
        ends = range(-sequence.position % PAGE_SIZE or PAGE_SIZE, left, PAGE_SIZE)
        count = rng.choice(list(ends) or [left])
    span = prompt[:, sequence.prefilled : sequence.prefilled + count]
    step["prefill"].append((slot, sequence.position, span, count == left))  # type: ignore[attr-defined]
    step["first_frame"][slot] = len(sequence.codes)  # type: ignore[index]
    sequence.prefilled += count
    sequence.position += count
    return "prefill" if count == left else None


def keys_and_values(driver: Driver, slot: int, positions: int) -> torch.Tensor:
    """Cached keys and values of a slot, read from the pool: codes alone would hide a difference of one bit."""
    pages = torch.tensor(driver.owned[slot])
    pool = driver.executor.pool
    return pool.unflatten(3, (-1, PAGE_SIZE))[:, :, :, pages].flatten(3, 4)[:, :, :, :positions].clone()


def take(sequence: Sequence, codes: Array) -> None:
    sequence.codes.append(codes.tolist())
    sequence.frames += 1
    if sequence.frames == sequence.turns[sequence.turn][1]:
        sequence.turn, sequence.prefilled, sequence.frames = sequence.turn + 1, 0, 0


def run(driver: Driver, sequences: list[Sequence], rng: random.Random, whole: bool) -> None:
    """Run all sequences, in as many slots at a time as there are, some steps left out at random unless ``whole``."""
    waiting, running = list(sequences), {}
    release: list[int] = []
    while waiting or running:
        step: dict[str, object] = {"release": release, "assign": {}, "prefill": [], "decode": {}, "first_frame": {}}
        release = []
        free = [slot for slot in range(SLOTS) if slot not in running]
        while waiting and free and (whole or rng.random() < 0.6):
            slot = free.pop(0 if whole else rng.randrange(len(free)))
            running[slot] = waiting.pop(0)
            step["assign"][slot] = running[slot].sampling  # type: ignore[index]
        rows: dict[str, list[Sequence]] = {"prefill": [], "decode": []}
        for slot in sorted(running, key=lambda _: rng.random()):
            if whole or rng.random() < 0.8:
                kind = advance(running[slot], slot, rng, whole, step)
                if kind:
                    rows[kind].append(running[slot])
        out = driver.step(**step)  # type: ignore[arg-type]
        for sequence, codes in zip(rows["prefill"] + rows["decode"], out.codes, strict=True):
            take(sequence, codes)
        release = [slot for slot in running if running[slot].done]
        for slot in release:
            running[slot].cache = keys_and_values(driver, slot, running[slot].position)
        running = {slot: sequence for slot, sequence in running.items() if not sequence.done}
    driver.step(release=release)


def check(name: str, seed: int, count: int, threads: int, native: bool = False) -> None:
    executed_by, config = executor(name, threads, native), load_model_config(CHECKPOINTS[name])
    torch.set_num_threads(threads)
    rng = random.Random(seed)
    pages = rng.sample(range(PAGES), PAGES)
    crowd = [make_sequence(rng, config) for _ in range(count)]
    alone = [Sequence(sequence.sampling, sequence.turns) for sequence in crowd]
    run(Driver(executed_by, pages), crowd, rng, whole=False)
    for sequence in alone:
        run(Driver(executed_by, list(range(PAGES))), [sequence], rng, whole=True)
    for one, other in zip(crowd, alone, strict=True):
        assert one.codes == other.codes
        assert one.cache is not None
        assert other.cache is not None
        assert torch.equal(one.cache, other.cache)


@pytest.mark.parametrize("native", [False, True])
@given(st.integers(0, 2**32), st.integers(1, 10))
@hypothesis_settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_sequences_are_bit_equal_alone_and_in_a_crowd(native: bool, seed: int, count: int) -> None:
    check("tiny", seed, count, threads=1, native=native)


@pytest.mark.parametrize(
    ("threads", "count", "native"), [(1, 6, False), (1, 6, True), pytest.param(2, 3, False, marks=pytest.mark.slow)]
)
def test_sequences_of_the_bundled_model_are_bit_equal_alone_and_in_a_crowd(
    threads: int, count: int, native: bool
) -> None:
    check("mini", seed=threads, count=count, threads=threads, native=native)


def test_sequences_are_bit_equal_alone_and_in_a_crowd_with_two_threads() -> None:
    check("tiny", seed=5, count=2, threads=2)


@pytest.mark.parametrize("name", ["tiny", "long"])
@given(st.integers(1, 10), st.integers(0, 2**32))
@hypothesis_settings(max_examples=10, deadline=None)
def test_fast_logits_of_a_row_are_bit_equal_in_any_batch(name: str, quads: int, seed: int) -> None:
    torch.set_num_threads(1)
    fed = hand_fed(name)
    generator = torch.Generator().manual_seed(seed)
    batch = 4 * quads  # the executor pads to this
    hidden = torch.randn(batch, fed.config.slow.dim, generator=generator)
    codes = torch.randint(0, fed.config.codebook_size, (9, batch), generator=generator)

    def logits(rows: torch.Tensor) -> torch.Tensor:
        attend = fed.model.frame_attention(len(rows))
        parts = [fed.model.fast_first(hidden[rows], codes[0, rows], attend)]
        parts += [fed.model.fast_next(codes[book, rows], attend) for book in range(1, 9)]
        return torch.stack(parts, 1)

    some = torch.randperm(batch, generator=generator)[:4]
    assert torch.equal(logits(torch.arange(batch))[some], logits(some))
