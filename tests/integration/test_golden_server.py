"""Greedy codes of the original implementation, through the running server."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.integration.client import CodesReply, codes, gather
from tests.integration.group import ROOT, Group

GOLDEN = ROOT / "tests" / "data" / "tiny"
CASES = json.loads((GOLDEN / "greedy.json").read_text())["cases"]
FRAMES = 41


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    return load_file(GOLDEN / "greedy.safetensors")


def greedy(group: Group, case: str) -> object:
    return codes(group.base, CASES[case]["text"], temperature=0, max_new_tokens=FRAMES)


def check(reply: CodesReply, case: str, golden: dict[str, np.ndarray]) -> None:
    frames, stops = golden[f"{case}.frames"], CASES[case]["last_token_is_im_end"]
    expected = frames[:, :-1] if stops else frames  # the end token's own column is no frame
    assert np.array_equal(reply.codes, expected)
    assert reply.finish == {"finish_reason": "stop" if stops else "length", "frames": expected.shape[1]}


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]["prompt_text"] is None])
def test_greedy_codes_alone(tiny: Group, golden: dict[str, np.ndarray], case: str) -> None:
    check(gather(greedy(tiny, case))[0], case, golden)


def test_greedy_codes_seven_at_a_time(tiny: Group, golden: dict[str, np.ndarray]) -> None:
    cases = ["plain", "unicode", "stop", "plain", "stop", "unicode", "plain"]
    for reply, case in zip(gather(*(greedy(tiny, case) for case in cases)), cases, strict=True):
        check(reply, case, golden)


def test_the_case_stop_ends_by_itself_after_eight_frames(tiny: Group) -> None:
    (reply,) = gather(greedy(tiny, "stop"))
    assert reply.finish == {"finish_reason": "stop", "frames": 8}
