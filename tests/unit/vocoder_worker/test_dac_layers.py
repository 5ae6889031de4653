"""The layers taken from descript-audio-codec."""

from __future__ import annotations

import subprocess
import sys

import torch
from hypothesis import given
from hypothesis import strategies as st

from vocoder_worker.dac_layers import Snake1d
from vocoder_worker.layers import Snake


@given(st.integers(0, 2**31), st.floats(0.01, 30), st.integers(1, 400))
def test_snake_equals_that_of_dac(seed, scale, steps):
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = Snake(3), Snake1d(3)
    theirs.alpha.data = torch.rand(1, 3, 1, generator=generator) + 0.05
    ours.load_state_dict(theirs.state_dict())
    x = scale * torch.randn(2, 3, steps, generator=generator)
    before = x.clone()
    with torch.inference_mode():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-6, atol=1e-6)
    assert torch.equal(x, before)


def test_the_training_half_of_dac_is_not_imported():
    check = "import sys, vocoder_worker.dac_layers; print('audiotools' in sys.modules or 'dac.model' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
