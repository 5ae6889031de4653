"""Laws of the captured frame, as far as a CPU can show them: static = plain, no host read, one shape, an op budget."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from ar_support import DATA, GREEDY, ROOT, Driver, settings
from fake_device import FakeDevice
from recorder import NoHostReads, Recorder
from torch import Tensor

from ar_worker import attention, device_state, frame, model, ops, runner, sampling
from ar_worker.attention import decode_attention, decode_group, page_bucket
from ar_worker.device_state import DeviceState, FrameRows
from ar_worker.model import DualAr
from ar_worker.ops import EAGER, Ops
from ar_worker.rows import RowPolicy
from ar_worker.runner import FrameRunner, KvPool
from ar_worker.slot_table import Limits
from ar_worker.step_rows import PageGroup
from ar_worker.torch_executor import TorchExecutor
from ar_worker.weights import assemble, expected_shapes
from common.checkpoint import ModelConfig, load_model_config
from common.messages import Array, Sampling, StepPlan

BUDGET = json.loads(Path(__file__).with_name("op_budget.json").read_text())
PUBLISHED = ROOT / "tests" / "data" / "s2_pro_config.json"
SAMPLINGS = [
    GREEDY,
    Sampling(0.9, 0.7, 0.9, 30, 1),
    Sampling(0.1, 0.3, 0.9, 30, 7),
    Sampling(1.2, 0.9, 1.0, 32, 3),
    Sampling(0.7, 0.1, 0.8, 1, 4),
]


def by_page_count(q: Tensor, kv: Tensor, pages: Tensor, slots: Tensor, positions: Tensor, page_size: int) -> Tensor:
    """Paged attention whose shapes are those of the plain path; it reads lengths on the host, as a test may."""
    out = q.new_zeros(len(q), q.shape[1] * q.shape[2])
    for row, position in enumerate(positions.tolist()):
        read = pages[slots[row], : page_bucket(position // page_size + 1)][None]
        group = decode_group(slice(0, 1), read, positions[row : row + 1], page_size, q.dtype)
        out[row] = decode_attention(q[row : row + 1], kv, [group], page_size, out)[0]
    return out


def scenario(driver: Driver, sampling_of: list[Sampling], rounds: int = 22) -> Iterator[dict[str, object]]:
    """Steps in which sequences of different lengths join one after another, and one leaves."""
    rng, position, left = np.random.default_rng(5), dict[int, int](), False
    model = driver.executor.limits.model
    for number in range(rounds):
        step: dict[str, object] = {"assign": {}, "prefill": [], "decode": dict(position)}
        if number == 14:
            step["release"], left = [1], True
            del position[1], step["decode"][1]  # type: ignore[attr-defined]
        slot = number // 2
        position = {slot: at + 1 for slot, at in position.items()}
        if number % 2 == 0 and slot < len(sampling_of):
            length = min([4, 16, 40, 33, 70][slot], model.max_seq_len - rounds)
            prompt = np.zeros((11, length), int)
            prompt[0] = rng.integers(0, model.semantic_begin_id, length)
            step["assign"], step["prefill"] = {slot: sampling_of[slot]}, [(slot, 0, prompt, True)]
            position[slot] = prompt.shape[1]
        yield step
    assert left


def plain(name: str) -> tuple[list[Array], Tensor]:
    executor = TorchExecutor(DATA / f"checkpoint_{name}", settings(slots=6, pages=40))
    driver = Driver(executor, list(range(40)))
    outputs = [driver.step(**step).codes for step in scenario(driver, SAMPLINGS)]  # type: ignore[arg-type]
    return outputs, executor.pool


def static(name: str, ahead: bool, junk: bool) -> tuple[list[Array], TorchExecutor]:
    """The same steps by replayed frames, each launched before the one before it is read if ``ahead``."""
    executor = TorchExecutor(
        DATA / f"checkpoint_{name}", settings(slots=6, pages=40), FakeDevice(), Ops(paged_decode=by_page_count)
    )
    executor.warm_up()
    if junk:
        executor.pool[:, :, :, -16:] = 1e30  # never NaN, see the test of what is written
        executor._state.hidden[6] = torch.nan
    driver, outputs, tickets = Driver(executor, list(range(40))), [], []
    for step in scenario(driver, SAMPLINGS):
        tickets.append(driver.launch(**step))  # type: ignore[arg-type]
        if len(tickets) > ahead:
            outputs.append(executor.resolve(tickets.pop(0)).codes)
    outputs += [executor.resolve(ticket).codes for ticket in tickets]
    return outputs, executor


@pytest.mark.parametrize(("ahead", "junk"), [(False, False), (True, False), (True, True)])
def test_replayed_frames_equal_the_plain_path_in_every_bit(ahead: bool, junk: bool) -> None:
    want, pool = plain("tiny")
    got, executor = static("tiny", ahead, junk)
    assert [codes.tolist() for codes in got] == [codes.tolist() for codes in want]
    assert torch.equal(executor.pool[:, :, :, :-16], pool[:, :, :, :-16])
    assert executor._graphs is not None
    assert executor._graphs.replayed > 20
    assert executor.frame_path == "graph"


def test_the_whole_table_twin_gives_the_codes_of_the_plain_path() -> None:
    want, _ = plain("long")
    executor = TorchExecutor(DATA / "checkpoint_long", settings(slots=6, pages=40), FakeDevice(), Ops())
    executor.warm_up()
    driver = Driver(executor, list(range(40)))
    got = [driver.step(**step).codes for step in scenario(driver, SAMPLINGS)]  # type: ignore[arg-type]
    assert [codes.tolist() for codes in got] == [codes.tolist() for codes in want]


def test_a_row_with_more_candidates_than_the_graphs_have_runs_without() -> None:
    executor = TorchExecutor(DATA / "checkpoint_tiny", settings(), FakeDevice(), Ops(paged_decode=by_page_count))
    executor.warm_up()
    eager = Driver(TorchExecutor(DATA / "checkpoint_tiny", settings()), list(range(64)))
    prompt, wide = np.ones((11, 20), int), Sampling(1.0, 1.0, 1.0, 200, 3)
    before = executor._graphs.replayed  # type: ignore[union-attr]
    got, want = (driver.generate(prompt, wide, 6)[0] for driver in (Driver(executor, list(range(64))), eager))
    assert got.tolist() == want.tolist()
    assert executor._graphs.replayed == before  # type: ignore[union-attr]


# On meta tensors ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def s2_pro(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    directory = tmp_path_factory.mktemp("s2_pro")
    (directory / "config.json").write_text(PUBLISHED.read_text())
    return load_model_config(directory)


def meta_runner(config: ModelConfig, kernels: Ops, slots: int = 64, bucket: int = 8) -> tuple[FrameRunner, FrameRows]:
    """A runner with weights, state and pool on the meta device, and rows for it."""
    device, dtype = torch.device("meta"), torch.bfloat16
    weights = assemble(config, lambda name: torch.empty(expected_shapes(config)[name], dtype=dtype, device=device))
    limits = Limits(slots, 2048, 16, 1024, config)
    made = DualAr(config, weights, RowPolicy(1), limits.table_width * 16, kernels)
    slow = config.slow
    pool = torch.empty(slow.n_layer, 2, slow.n_kv_head, 2049 * 16, slow.head_dim, dtype=dtype, device=device)
    state = DeviceState(limits, torch.zeros(slots + 1, slow.dim, dtype=dtype, device=device))
    output = torch.zeros(3, slots, 11, dtype=torch.int16, device=device)

    def rows(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(bucket, *shape, dtype=dtype, device=device)

    given = FrameRows(
        rows(dtype=torch.int64), rows(2, dtype=torch.int64), rows(dtype=torch.bool), rows(dtype=torch.bool)
    )
    return FrameRunner(made, state, KvPool(pool, 16), output), given


@pytest.mark.parametrize("name", ["s2_pro", "mini"])
def test_a_frame_reads_nothing_on_the_host(s2_pro: ModelConfig, name: str) -> None:
    config = s2_pro if name == "s2_pro" else load_model_config(ROOT / "models" / "mini")
    made, rows = meta_runner(config, EAGER)
    with torch.inference_mode():
        made.run_static(rows, 32)  # constants are made in the first
        with NoHostReads():
            made.run_static(rows, 32)
            made.publish(len(rows.slots), 1)


HOST_READS = {
    "host tensor": lambda x: x + torch.ones(8),
    "random numbers": torch.rand_like,
    "boolean mask": lambda x: x[x > 0],
    "scalar": lambda x: float(x[0]),
}


@pytest.mark.parametrize("call", HOST_READS.values(), ids=HOST_READS.keys())
def test_the_check_finds_host_reads(call: object) -> None:
    with pytest.raises((AssertionError, NotImplementedError, RuntimeError)), NoHostReads():
        call(torch.empty(8, device="meta"))  # type: ignore[operator]


FRAME_MODULES = [attention, device_state, frame, model, ops, runner, sampling]
CONSTRUCTORS = {"tensor", "new_tensor", "pin_memory", "as_tensor", "from_numpy", "tolist", "item", "numpy", "cpu"}
ALLOWED = {"_limits", "assign", "_append_pages", "_fill", "_resume"}  # on the host, before the frame


@pytest.mark.parametrize("module", FRAME_MODULES)
def test_the_source_of_the_frame_has_nothing_that_meta_tensors_hide(module: ModuleType) -> None:
    for function in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(function, ast.FunctionDef) or function.name in ALLOWED:
            continue
        calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
        names = {node.attr for node in calls if isinstance(node, ast.Attribute)}
        assert not names & CONSTRUCTORS, function.name


# Shapes and counts ----------------------------------------------------------------------------------------------------


def recorded(lengths: list[int], sampling: list[Sampling], permuted: bool) -> list[tuple[str, tuple[object, ...]]]:
    """Operations of a static frame with sequences of these lengths."""
    executor = TorchExecutor(DATA / "checkpoint_long", settings(slots=6, pages=40), FakeDevice(), Ops())
    executor.warm_up()
    driver = Driver(executor, list(range(40))[:: -1 if permuted else 1])
    for slot, length in enumerate(lengths):
        driver.step(assign={slot: sampling[slot]}, prefill=[(slot, 0, np.ones((11, length), int), True)])
    rows = FrameRows(
        torch.arange(4), torch.ones(4, 2, dtype=torch.int64), torch.zeros(4, dtype=torch.bool), torch.zeros(4) > 0
    )
    executor._runner._fast.clear()  # it may have been made in inference mode
    with torch.no_grad():
        executor._runner.run_static(rows, 32)
        with Recorder() as record:
            executor._runner.run_static(rows, 32)
    return record.operations


def test_operations_and_shapes_do_not_depend_on_lengths_pages_and_sampling() -> None:
    one = recorded([4, 5, 6, 7], [GREEDY] * 4, permuted=False)
    assert one == recorded([3, 16, 40, 33], SAMPLINGS, permuted=True)
    assert len(one) > 200


def test_eager_frame_is_within_its_budget() -> None:
    executor = TorchExecutor(ROOT / "models" / "mini", settings())
    driver = Driver(executor, list(range(64)))
    driver.step(assign={0: GREEDY}, prefill=[(0, 0, np.zeros((11, 100), int), True)])
    prefilled = torch.tensor([False, True, True, True])
    advance = torch.stack([~prefilled, torch.ones(4)], 1).long()
    rows = FrameRows(torch.tensor([0, 4, 4, 4]), advance, prefilled, torch.zeros(4) > 0)
    executor._runner._fast.clear()
    with torch.no_grad():
        executor._runner.run(rows, [PageGroup(0, 1, 8)], 32, 0)
        with Recorder() as record:
            executor._runner.run(rows, [PageGroup(0, 1, 8)], 32, 0)
    assert 500 < len(record.operations) <= BUDGET["eager frame of the bundled model"]


def test_launches_of_a_frame_with_kernels_are_within_their_budgets(s2_pro: ModelConfig) -> None:
    record = Recorder()
    made, rows = meta_runner(s2_pro, record.kernels())
    with torch.no_grad():
        made.run_static(rows, 32)
        record.operations.clear()
        with record:
            made.run_static(rows, 32)
    names = [name for name, _ in record.operations]
    slow = names.index("draw_token")
    assert 36 * 5 < slow <= BUDGET["slow step of S2 Pro with kernels"]
    assert 36 * 5 < len(names) - slow <= BUDGET["draws and fast passes of S2 Pro with kernels"]


def test_a_step_has_one_copy_in_and_one_out() -> None:
    device = FakeDevice()
    executor = TorchExecutor(DATA / "checkpoint_tiny", settings(), device, Ops(paged_decode=by_page_count))
    executor.warm_up()
    driver = Driver(executor, list(range(64)))
    driver.step(assign={0: GREEDY}, prefill=[(0, 0, np.ones((11, 30), int), True)])
    device.log.clear()
    driver.step(assign={1: GREEDY}, prefill=[(1, 0, np.ones((11, 30), int), True)], decode={0: 30})
    assert device.log == ["begin", "in", "replay", "out", "wait"]


def test_ended_rows_launched_ahead_leave_no_trace() -> None:
    """The step behind an end was launched before the end was known; the next sequence of the slot is as ever."""
    prompt = np.ones((11, 20), int)
    executor = TorchExecutor(DATA / "checkpoint_tiny", settings(), FakeDevice(), Ops(paged_decode=by_page_count))
    executor.warm_up()
    driver = Driver(executor, list(range(64)))
    want, _ = driver.generate(prompt, SAMPLINGS[1], 8)
    first = driver.launch(assign={0: SAMPLINGS[1]}, prefill=[(0, 0, prompt, True)])
    executor._state.table[0, -11] = executor.limits.model.im_end_id  # as if it had ended there
    second = driver.launch(decode={0: 20})
    executor.resolve(first)
    assert executor.resolve(second).ended.tolist() == [1]
    driver.step(release=[0])
    assert driver.generate(prompt, SAMPLINGS[1], 8)[0].tolist() == want.tolist()


def test_a_bad_plan_between_two_launches_changes_nothing() -> None:
    executor = TorchExecutor(DATA / "checkpoint_tiny", settings(), FakeDevice(), Ops(paged_decode=by_page_count))
    executor.warm_up()
    driver = Driver(executor, list(range(64)))
    want, _ = driver.generate(np.ones((11, 20), int), GREEDY, 2)
    first = driver.launch(assign={0: GREEDY}, prefill=[(0, 0, np.ones((11, 20), int), True)])
    none = np.zeros(0, np.int32)
    with pytest.raises(ValueError, match="slot 9"):
        executor.launch(StepPlan(0, [9], [], []), [np.zeros((11, 0), np.int32), none, np.zeros((0, 3), np.int32)])
    second = driver.launch(decode={0: 20})
    got = [executor.resolve(ticket).codes[0].tolist() for ticket in (first, second)]
    assert got == want.tolist()
