"""Imports two layers of descript-audio-codec without the rest of that package.

``dac/__init__`` and ``dac/nn/__init__`` import the training half (descript-audiotools, which isn't installed). The
modules ``dac.nn.layers`` and ``dac.nn.quantize`` need neither: here they are imported under packages that were found
but not run.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings


def _place_bare_package(name: str) -> None:
    """Register package ``name`` in ``sys.modules`` without running its ``__init__``."""
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(f"{name} is missing: install descript-audio-codec")
    sys.modules[name] = importlib.util.module_from_spec(spec)


for _package in ("dac", "dac.nn"):
    _place_bare_package(_package)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # dac scripts one function with torch.jit
    from dac.nn.layers import Snake1d
    from dac.nn.quantize import ResidualVectorQuantize

__all__ = ["ResidualVectorQuantize", "Snake1d"]
