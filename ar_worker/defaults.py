"""Choices that follow from the model's size and the processor, where the configuration leaves them open."""

from __future__ import annotations

from pathlib import Path

import torch

THREADED_PARAMETERS = 50_000_000
"""From here on a frame waits for memory more than for anything else, and a second thread brings more than it costs."""

HALF_PARAMETERS = 100_000_000
"""From here on products in bf16 gain more than their conversions cost, on processors that have them in hardware."""

MEMINFO = Path("/proc/meminfo")


def frame_threads(configured: int, parameters: int, cores: int) -> tuple[int, str]:
    """Threads of a native frame, and why. ``configured`` 0: chosen here."""
    if configured:
        return configured, "configured"
    if parameters < THREADED_PARAMETERS:
        return 1, f"{_millions(parameters)}: a second thread would cost more than it brings"
    return cores, f"{_millions(parameters)}: bound by memory, which {cores} usable cores read faster"


def dtype_of(device: torch.device, parameters: int, native: bool) -> tuple[torch.dtype, str]:
    """Type of weights and KV, and why. ``native``: frames run in C++, which reads the checkpoint's own type."""
    if device.type == "cuda":
        return torch.bfloat16, "on a GPU"
    if native:
        return torch.float32, "exact for native frames, whose weights stay in the checkpoint's type"
    if parameters >= HALF_PARAMETERS and has_bf16_products():
        return torch.bfloat16, f"{_millions(parameters)}, and the processor multiplies bf16 in tiles"
    return torch.float32, "the processor has no fast bf16 products, or the model is small"


def has_bf16_products() -> bool:
    """Whether the processor multiplies matrices of bf16 in hardware (AMX). Without, bf16 is slower than fp32."""
    supported = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(supported and supported())


def available_memory(meminfo: Path = MEMINFO) -> int | None:
    """Bytes of memory that can be taken; None where the system doesn't tell."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.0f} million parameters"
