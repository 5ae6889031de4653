"""The choice between kernels and their eager twins, by the device and not by whether an import works."""

from __future__ import annotations

import logging

import torch

from ar_worker.ops import EAGER, Ops

log = logging.getLogger(__name__)


def choose_ops(device: torch.device) -> Ops:
    """Kernels on CUDA, eager functions elsewhere; on CUDA without Triton eager functions, with a warning."""
    if device.type != "cuda":
        return EAGER
    try:
        from ar_worker.kernels.launch import KERNELS
    except ImportError as error:
        log.warning("frames run without kernels and graphs: Triton can't be imported", extra={"cause": str(error)})
        return EAGER
    return KERNELS
