"""Compilation of the kernels for GPUs that need not be there: registers, spills, shared memory, asynchronous copies.

Run as ``python -m ar_worker.kernels.compile [capability ...]``; a JSON line per kernel and capability.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ar_worker.kernels import attention, draw, rows

CAPABILITIES = (80, 86, 89, 90, 100, 120)


@dataclass(frozen=True)
class Compiled:
    """Resources that a compiled kernel takes on a GPU; ``spills`` in bytes of stores and loads, ``shared`` in bytes."""

    kernel: str
    capability: int
    registers: int
    spills: int
    shared: int
    asynchronous: bool


@dataclass(frozen=True)
class Form:
    """A kernel and how the launches of S2 Pro in bf16 call it.

    Types of the arguments are named in order; ``i32:16``: divisible by 16.
    """

    name: str
    kernel: Any
    types: str
    constants: dict[str, Any]
    warps: int = 4


_HEADS = {"HEADS": 32, "KV_HEADS": 8, "DIM": 128, "NORM": True}
_BF = "*bf16"
_DRAW = f"{_BF} *i64 *i64 *fp32 *fp32 *i64 *i1 *i64 i32 i32:16 i32 i32 i32:16 i32:16 i32 i32 i32 i32"
_FAST = f"{_BF} *fp32 *fp32 {_BF} {_BF} i32 i32:16 fp32 fp32"
_PAGED = f"{_BF} {_BF} *i32 *i64 *i64 *fp32 *fp32 i32:16 i64:16 i32:16 fp32"
_EMBED = f"*i64 {_BF} {_BF} *i64 {_BF} i32 i32 i32 fp32"

FORMS = (
    Form(
        "paged_decode",
        attention.paged_decode_partial,
        _PAGED,
        {"PAGE": 16, "GROUP": 4, "QUERIES": attention.LEAST_QUERIES, "DIM": 128}
        | {"SPLITS": attention.SPLITS, "TILE": attention.TILE},
    ),
    Form(
        "paged_decode_reduce",
        attention.paged_decode_reduce,
        f"*fp32 *fp32 {_BF}",
        {"DIM": 128, "SPLITS": attention.SPLITS},
        2,
    ),
    Form("fast_attention", attention.fast_attention, _FAST, _HEADS | {"LENGTH": 1, "POSITIONS": 10, "SPAN": 16}, 2),
    Form(
        "fast_attention_first", attention.fast_attention, _FAST, _HEADS | {"LENGTH": 2, "POSITIONS": 10, "SPAN": 16}, 2
    ),
    Form("embed_frame", rows.embed_frame, _EMBED, {"DIM": 2560, "CODEBOOKS": 10, "SCALED": True, "BLOCK": 1024}),
    Form(
        "add_rms_norm",
        rows.add_rms_norm,
        f"{_BF} {_BF} {_BF} {_BF} i32:16 i32:16 fp32",
        {"DIM": 2560, "ADD": True, "BLOCK": 4096},
        8,
    ),
    Form("qk_norm_rope_write", rows.qk_norm_rope_write, f"{_BF} *fp32 *fp32 {_BF} *i64 i32:16 i64:16 fp32", _HEADS, 1),
    Form("swiglu", rows.swiglu, f"{_BF} {_BF} i32:16", {"BLOCK": 1024}),
    Form("draw_token", draw.draw, _DRAW, {"TOKEN": True, "EXTRA": True, "RANKS": 32, "BLOCK": 4096}, 8),
    Form("draw_code", draw.draw, _DRAW, {"TOKEN": False, "EXTRA": False, "RANKS": 32, "BLOCK": 4096}, 8),
    Form("draw_code_256", draw.draw, _DRAW, {"TOKEN": False, "EXTRA": False, "RANKS": 256, "BLOCK": 4096}, 8),
)


def compile_form(form: Form, capability: int) -> Compiled:
    """A kernel for a capability (90: sm_90)."""
    constants = form.constants | ({"WINDOW_BLOCK": draw.WINDOW_BLOCK} if form.kernel is draw.draw else {})
    names = form.kernel.arg_names
    kinds = dict(zip(names, form.types.split(), strict=False))
    signature = {name: kinds[name].split(":")[0] if name in kinds else "constexpr" for name in names}
    aligned = [name for name, kind in kinds.items() if kind.startswith("*") or kind.endswith(":16")]
    source = ASTSource(
        fn=form.kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    options = {"num_warps": form.warps, "num_stages": 2 if form.name == "paged_decode" else 3}
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    registers, spills = _resources(made.asm["cubin"])
    return Compiled(form.name, capability, registers, spills, made.metadata.shared, "cp.async" in made.asm["ptx"])


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of local memory of a kernel."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+).*?LOCAL:(\d+)", output)
    if found is None:
        raise RuntimeError(f"no resource usage in {output!r}")
    registers, stack, local = map(int, found.groups())
    return registers, stack + local


def compile_all(capabilities: Sequence[int], names: Sequence[str] = ()) -> Iterator[Compiled]:
    """All kernels, or those named, for all capabilities."""
    for capability in capabilities:
        for form in FORMS:
            if not names or form.name in names:
                yield compile_form(form, capability)


def main() -> None:
    """See the module."""
    words = sys.argv[1:]
    capabilities = [int(word) for word in words if word.isdigit()] or CAPABILITIES
    for made in compile_all(capabilities, [word for word in words if not word.isdigit()]):
        print(json.dumps(asdict(made)), flush=True)


if __name__ == "__main__":
    main()
