"""One thread: the tensors of these tests are too small for more, and the suite may share the machine."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
