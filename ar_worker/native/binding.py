"""Binds the native frame to the tensors of an executor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ar_worker.device_state import DeviceState
from ar_worker.model import DualAr
from ar_worker.runner import KvPool
from ar_worker.sampling import MOST_RANKS
from ar_worker.step_rows import FramePlan
from ar_worker.weights import DualArWeights, LayerWeights
from common.checkpoint import NUM_CODEBOOKS, StackConfig
from common.messages import Array

TILE = 64  # columns of a packed matrix that lie together
VECTOR = 16
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64
_LAYER = ("attention_norm", "wqkv", "wqkv_bias", "qk_norm", "wo", "wo_bias", "ffn_norm", "w13", "w2")
_MATRICES = ("wqkv", "wo", "w13", "w2")


class _Layer(ctypes.Structure):
    _fields_ = [(name, _POINTER) for name in _LAYER]


class _Stack(ctypes.Structure):
    _fields_ = [
        ("layers", ctypes.POINTER(_Layer)),
        ("rotation", _POINTER),
        *((name, _INT) for name in ("count", "dim", "heads", "kv_heads", "head_dim", "inner")),
        ("eps", ctypes.c_float),
    ]


class _Model(ctypes.Structure):
    _fields_ = [
        ("slow", _Stack),
        ("fast", _Stack),
        *(
            (name, _POINTER)
            for name in ("embeddings", "codebook_embeddings", "slow_norm", "head", "project_in", "project_bias")
        ),
        *((name, _POINTER) for name in ("fast_embeddings", "fast_projected", "fast_norm", "fast_output")),
        *((name, _INT) for name in ("codebook_size", "semantic_begin", "semantic_end", "im_end")),
        *((name, _INT) for name in ("scaled", "norm_fast_input")),
        ("pool", _POINTER),
        *((name, _INT) for name in ("pool_positions", "page_size")),
        *((name, _POINTER) for name in ("state", "temperatures", "limits", "pages")),
        ("table_width", _INT),
        ("hidden", _POINTER),
        ("engine", _POINTER),
    ]


class NativeError(RuntimeError):
    """The native frame can't serve this model; the message says why."""


def packed(matrix: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """A matrix [in, out] as [out / 64, in, 64], padded with zeros."""
    padded = torch.nn.functional.pad(matrix.to(dtype), (0, -matrix.shape[1] % TILE))
    return padded.unflatten(1, (-1, TILE)).transpose(0, 1).contiguous()


def exact_type(matrices: Iterable[Tensor], known: Callable[[int], bool]) -> torch.dtype:
    """The smallest type known to the library that holds every value exactly: as a rule, the checkpoint's own."""
    kept = list(matrices)
    for dtype in (torch.bfloat16, torch.float16):
        if known(TYPES[dtype]) and all(torch.equal(matrix.to(dtype).float(), matrix) for matrix in kept):
            return dtype
    return torch.float32


class NativeFrame:
    """Runs frames by the library, on an executor's own state and pool.

    Raises:
        NativeError: the library can't be loaded, or the model has a shape or type that it doesn't know.
    """

    def __init__(self, library: Path, model: DualAr, state: DeviceState, pool: KvPool, threads: int = 1) -> None:
        _check(model)
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise NativeError(str(error)) from None
        sizes = [self._library.shoal_sizes(which) for which in range(3)]
        if sizes != [ctypes.sizeof(kind) for kind in (_Layer, _Stack, _Model)]:
            raise NativeError(f"{library} is of another version")
        self._frame = self._library.shoal_frame
        self._frame.argtypes, self._frame.restype = [_POINTER, _INT, *[_POINTER] * 6], None
        self._kept: list[object] = []  # what the structure points to
        self._packed_bytes = 0
        self._library.shoal_engine.argtypes, self._library.shoal_engine.restype = [_INT, _INT], _POINTER
        self.weight_type = exact_type(_matrices(model.weights), self._library.shoal_knows)
        self.threads = threads
        self._model = self._bind(model, state, pool)
        self._logits = model.config.codebook_size + 1

    @property
    def memory_bytes(self) -> int:
        """Of the packed copies of the matrices."""
        return self._packed_bytes

    def run(self, plan: FramePlan, output: Tensor, trace: Tensor | None = None) -> None:
        """One frame of the plan's rows without padding, recorded in the state.

        Args:
            output: int16 [rows, 11] or longer, takes ten codes, and 1 where the end token was drawn.
            trace: float32 [rows, 10, codebook_size + 1], takes the logits of each draw.
        """
        arrays: list[Array] = [plan.slots, plan.advance, plan.prefilled, plan.begins]
        pointers = [array.ctypes.data for array in arrays]
        traced = None if trace is None else trace.data_ptr()
        self._frame(ctypes.byref(self._model), plan.order.size, *pointers, output.data_ptr(), traced)

    def _bind(self, model: DualAr, state: DeviceState, pool: KvPool) -> _Model:
        config, weights = model.config, model.weights
        slow_qk, fast_qk = model.qk_weights
        pages = state.pages
        return _Model(
            slow=self._stack(config.slow, weights.slow, slow_qk, model.slow_rotation),
            fast=self._stack(config.fast, weights.fast, fast_qk, model.fast_rotation),
            embeddings=self._keep(weights.embeddings),
            codebook_embeddings=self._keep(weights.codebook_embeddings),
            slow_norm=self._keep(weights.slow_norm),
            head=self._pack(weights.head),
            project_in=self._pack(weights.project_in),
            project_bias=self._keep(weights.project_in_bias),
            fast_embeddings=self._keep(weights.fast_embeddings),
            fast_projected=self._keep(model.fast_projected),
            fast_norm=self._keep(weights.fast_norm),
            fast_output=self._pack(weights.fast_output),
            codebook_size=config.codebook_size,
            semantic_begin=config.semantic_begin_id,
            semantic_end=config.semantic_end_id,
            im_end=config.im_end_id,
            scaled=config.scale_codebook_embeddings,
            norm_fast_input=config.norm_fastlayer_input,
            pool=self._keep(pool.data),
            pool_positions=pool.data.shape[3],
            page_size=pool.page_size,
            state=self._keep(state.table),
            temperatures=self._keep(state.temperatures),
            limits=self._keep(state.limits),
            pages=self._keep(pages),
            table_width=pages.shape[1],
            hidden=self._keep(state.hidden),
            engine=self._library.shoal_engine(TYPES[self.weight_type], self.threads),
        )

    def _stack(
        self, config: StackConfig, layers: Sequence[LayerWeights], qk_weights: list[Tensor | None], rotation: Tensor
    ) -> _Stack:
        bound = (_Layer * len(layers))(*map(self._layer, layers, qk_weights))
        self._kept.append(bound)
        return _Stack(
            layers=bound,
            rotation=self._keep(rotation),
            count=len(layers),
            dim=config.dim,
            heads=config.n_head,
            kv_heads=config.n_kv_head,
            head_dim=config.head_dim,
            inner=config.intermediate_size,
            eps=config.norm_eps,
        )

    def _layer(self, weights: LayerWeights, qk_weight: Tensor | None) -> _Layer:
        values = {name: qk_weight if name == "qk_norm" else getattr(weights, name) for name in _LAYER}
        return _Layer(
            **{name: self._pack(value) if name in _MATRICES else self._keep(value) for name, value in values.items()}
        )

    def _pack(self, matrix: Tensor | None) -> int | None:
        if matrix is None:
            return None
        tensor = packed(matrix, self.weight_type)
        self._packed_bytes += tensor.nbytes
        return self._keep(tensor)

    def _keep(self, tensor: Tensor | None) -> int | None:
        if tensor is None:
            return None
        if not tensor.is_contiguous():
            raise NativeError("a tensor of the model is not contiguous")
        self._kept.append(tensor)
        return tensor.data_ptr()


def _matrices(weights: DualArWeights) -> Iterator[Tensor]:
    """All that is packed."""
    for layer in (*weights.slow, *weights.fast):
        yield from (getattr(layer, name) for name in _MATRICES)
    yield from (weights.head, weights.fast_output)
    if weights.project_in is not None:
        yield weights.project_in


def _check(model: DualAr) -> None:
    if model.device.type != "cpu" or model.dtype != torch.float32:
        raise NativeError(f"{model.dtype} on {model.device}: only fp32 on a CPU")
    if model.config.num_codebooks != NUM_CODEBOOKS or MOST_RANKS != 256:
        raise NativeError(f"{model.config.num_codebooks} codebooks")
    for stack in (model.config.slow, model.config.fast):
        if stack.head_dim % VECTOR:
            raise NativeError(f"a head dimension of {stack.head_dim}")
