"""Metadata of an S2 checkpoint directory, read from its JSON files without weights and without torch.

Three rooms read it: the gateway (tokenizer ids, sample rate, default sampling), the AR worker (model dimensions) and
the vocoder worker (codec dimensions). Formats: config.json of model type ``fish_qwen3_omni`` (S2) or ``dual_ar`` (the
older flat form), generation_config.json, codec_config.json and tokenizer.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

NUM_CODEBOOKS = 10
IM_END = "<|im_end|>"


class CheckpointError(ValueError):
    """The checkpoint directory can't be used; the message names the file and what is wrong with it."""


class StackConfig(Struct, frozen=True):
    """Dimensions of one transformer stack (the slow or the fast one)."""

    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    dim: int
    intermediate_size: int
    qk_norm: bool
    qkv_bias: bool
    o_bias: bool
    rope_base: float
    norm_eps: float


class ModelConfig(Struct, frozen=True):
    """The Dual-AR model: a slow stack over positions and a fast stack over the codebooks of one frame."""

    slow: StackConfig
    fast: StackConfig
    vocab_size: int
    codebook_size: int
    num_codebooks: int
    max_seq_len: int
    semantic_begin_id: int
    semantic_end_id: int  # inclusive
    im_end_id: int
    tie_word_embeddings: bool
    scale_codebook_embeddings: bool
    norm_fastlayer_input: bool


class GenerationConfig(Struct, frozen=True):
    """Default sampling of a checkpoint, and the text it was trained on.

    ``fast_temperature``: of the residual codes; None: the same as ``temperature``. ``normalize``: the language in which
    numbers and abbreviations must be spelled out; None: not at all. ``turn_bytes``: maximum UTF-8 bytes of a turn,
    ``turns``: maximum turns of a conversation; None: no maximum.
    """

    temperature: float = 0.8
    top_p: float = 0.8
    top_k: int = 30
    fast_temperature: float | None = None
    normalize: Literal["en"] | None = None
    turn_bytes: Annotated[int, Meta(ge=40)] | None = None
    turns: Annotated[int, Meta(ge=1)] | None = None


class WindowTransformerConfig(Struct, frozen=True):
    """A causal transformer of the codec. Each position attends to ``window_size`` positions, including itself."""

    n_layer: int
    dim: int
    n_head: int
    head_dim: int
    intermediate_size: int
    window_size: int


class QuantizerConfig(Struct, frozen=True):
    semantic_codebook_size: int
    residual_codebook_size: int
    residual_codebooks: int
    codebook_dim: int
    downsample_factor: list[int]
    pre_transformer: WindowTransformerConfig
    post_transformer: WindowTransformerConfig
    convnext_mlp_ratio: int = 4


class CodecConfig(Struct, frozen=True):
    """Dimensions of the codec: mono sound of ``sample_rate`` Hz, ``hop`` samples per frame of ten codes."""

    sample_rate: int
    encoder_dim: int
    encoder_rates: list[int]
    encoder_transformer: WindowTransformerConfig | None  # after the last stage of the encoder
    latent_dim: int
    decoder_dim: int
    decoder_rates: list[int]
    quantizer: QuantizerConfig
    rope_base: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def hop(self) -> int:
        """Samples per frame."""
        hop = 1
        for rate in [*self.decoder_rates, *self.quantizer.downsample_factor]:
            hop *= rate
        return hop

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop

    @property
    def codebook_sizes(self) -> list[int]:
        quantizer = self.quantizer
        return [quantizer.semantic_codebook_size] + [quantizer.residual_codebook_size] * quantizer.residual_codebooks


def _s2_transformer(n_layer: int, window_size: int) -> WindowTransformerConfig:
    return WindowTransformerConfig(n_layer, 1024, 16, 64, 3072, window_size)


S2_CODEC = CodecConfig(
    sample_rate=44100,
    encoder_dim=64,
    encoder_rates=[2, 4, 8, 8],
    encoder_transformer=_s2_transformer(4, 512),
    latent_dim=1024,
    decoder_dim=1536,
    decoder_rates=[8, 8, 4, 2],
    quantizer=QuantizerConfig(4096, 1024, 9, 8, [2, 2], _s2_transformer(8, 128), _s2_transformer(8, 128)),
)
"""The codec of S2 Pro, whose checkpoint carries no codec configuration of its own."""


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from None


def _convert(value: Any, kind: Any, path: Path) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"{path}: {error}") from None


class _Fields:
    """A JSON object whose errors name the file and the missing field."""

    def __init__(self, values: dict[str, Any], path: Path, prefix: str = "") -> None:
        self.values, self.path, self.prefix = values, path, prefix

    def __getitem__(self, name: str) -> Any:
        if name not in self.values:
            raise CheckpointError(f"{self.path}: {self.prefix}{name} is missing")
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name)
        return default if value is None else value

    def section(self, name: str) -> _Fields:
        return _Fields(self[name], self.path, f"{self.prefix}{name}.")


def _stack(own: _Fields, text: _Fields, prefix: str = "", layers: str = "n_layer") -> dict[str, Any]:
    """Fields of a stack. Missing fields of the fast stack, its rope base and its eps are those of the text stack."""

    def pick(name: str) -> Any:
        value = own.get(prefix + name)
        return text[name] if value is None else value

    head_dim = own.get(prefix + "head_dim") or pick("dim") // pick("n_head")
    n_kv_head = own.get(prefix + "n_local_heads", text.get("n_local_heads", -1))
    return {
        "n_layer": own[layers],
        "n_head": pick("n_head"),
        "n_kv_head": n_kv_head if n_kv_head > 0 else pick("n_head"),
        "head_dim": head_dim,
        "dim": pick("dim"),
        "intermediate_size": pick("intermediate_size"),
        "qk_norm": own.get(prefix + "attention_qk_norm", False),
        "qkv_bias": own.get(prefix + "attention_qkv_bias", False),
        "o_bias": own.get(prefix + "attention_o_bias", False),
        "rope_base": text.get("rope_base", 10000.0),
        "norm_eps": text.get("norm_eps", 1e-5),
    }


def _semantic_range(directory: Path, codebook_size: int) -> tuple[int, int]:
    """First and last id of the semantic tokens, from the tokenizer; the ids must be consecutive."""
    tokens = special_tokens(directory)
    ids = [tokens.get(f"<|semantic:{code}|>") for code in range(codebook_size)]
    begin = ids[0]
    if begin is None or ids != list(range(begin, begin + codebook_size)):
        raise CheckpointError(
            f"{directory / 'tokenizer.json'}: <|semantic:0..{codebook_size - 1}|> are not consecutive ids"
        )
    return begin, begin + codebook_size - 1


def special_tokens(directory: Path) -> dict[str, int]:
    """Ids of the added tokens of the tokenizer, by text."""
    return {token["content"]: token["id"] for token in _read_json(directory / "tokenizer.json").get("added_tokens", [])}


def load_model_config(directory: Path) -> ModelConfig:
    """Read config.json of either model type.

    Raises:
        CheckpointError: a file is missing or unreadable, a field is missing or of the wrong type.
    """
    path = directory / "config.json"
    top = _Fields(_read_json(path), path)
    kind = top.get("model_type")
    if kind == "fish_qwen3_omni":
        text, audio = top.section("text_config"), top.section("audio_decoder_config")
        stacks = {"slow": _stack(text, text), "fast": _stack(audio, text)}
        codebook_size, num_codebooks = audio["vocab_size"], audio["num_codebooks"]
        scale, norm_input = True, True
    elif kind == "dual_ar":
        text = audio = top
        stacks = {"slow": _stack(top, top), "fast": _stack(top, top, prefix="fast_", layers="n_fast_layer")}
        codebook_size, num_codebooks = top["codebook_size"], top["num_codebooks"]
        scale = top.get("scale_codebook_embeddings", False)
        norm_input = top.get("norm_fastlayer_input", False)
    else:
        raise CheckpointError(f"{path}: model_type is {kind!r}, not 'fish_qwen3_omni' or 'dual_ar'")
    begin, end = top.get("semantic_start_token_id"), top.get("semantic_end_token_id")
    if begin is None or end is None:
        begin, end = _semantic_range(directory, codebook_size)
    im_end = top.get("eos_token_id")
    if im_end is None:
        im_end = special_tokens(directory).get(IM_END)
    model = {
        **stacks,
        "vocab_size": text["vocab_size"],
        "codebook_size": codebook_size,
        "num_codebooks": num_codebooks,
        "max_seq_len": text["max_seq_len"],
        "semantic_begin_id": begin,
        "semantic_end_id": end,
        "im_end_id": im_end,
        "tie_word_embeddings": text.get("tie_word_embeddings", True),
        "scale_codebook_embeddings": scale,
        "norm_fastlayer_input": norm_input,
    }
    config: ModelConfig = _convert(model, ModelConfig, path)
    if config.num_codebooks != NUM_CODEBOOKS:
        raise CheckpointError(f"{path}: num_codebooks is {config.num_codebooks}, not {NUM_CODEBOOKS}")
    if config.semantic_end_id - config.semantic_begin_id + 1 != config.codebook_size:
        raise CheckpointError(f"{path}: the semantic token ids do not number {config.codebook_size}")
    return config


def load_generation_config(directory: Path) -> GenerationConfig:
    """Read generation_config.json, or return the defaults of S2 if there is no such file."""
    path = directory / "generation_config.json"
    if not path.exists():
        return GenerationConfig()
    values = {name: value for name, value in _read_json(path).items() if value is not None}
    config: GenerationConfig = _convert(values, GenerationConfig, path)
    return config


def load_codec_config(directory: Path) -> CodecConfig:
    """Read codec_config.json, or return the dimensions of S2 Pro if there is no such file.

    The transformers before and after the quantizer are ``pre_transformer`` and ``post_transformer``, or both are
    ``pre_and_post_transformer``.
    """
    path = directory / "codec_config.json"
    if not path.exists():
        return S2_CODEC
    values = _read_json(path)
    quantizer = values.get("quantizer")
    if isinstance(quantizer, dict) and "pre_and_post_transformer" in quantizer:
        both = quantizer["pre_and_post_transformer"]
        quantizer = {"pre_transformer": both, "post_transformer": both} | quantizer
    values = {"encoder_transformer": None} | values | {"quantizer": quantizer}
    config: CodecConfig = _convert(values, CodecConfig, path)
    encoder_hop = 1
    for rate in [*config.encoder_rates, *config.quantizer.downsample_factor]:
        encoder_hop *= rate
    if not config.hop == encoder_hop == values.get("samples_per_frame", config.hop):
        raise CheckpointError(f"{path}: encoder, decoder and samples_per_frame disagree about the samples per frame")
    if 1 + config.quantizer.residual_codebooks != NUM_CODEBOOKS:
        raise CheckpointError(
            f"{path}: {config.quantizer.residual_codebooks} residual codebooks, not {NUM_CODEBOOKS - 1}"
        )
    return config
