"""The tokenizer and the configuration files of the miniature: S2's formats, with letters in place of word pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from models.recipe.codec import CODEC, CODES

LETTERS = " abcdefghijklmnopqrstuvwxyz0123456789.,;:?!'-"
PHRASES = [  # the fixed parts of the prompt are one token each
    "system\n",
    "user\n",
    "assistant\n",
    "convert the provided text to speech reference to the following:\n\nText:\n",
    "convert the provided text to speech",
    "\n\nSpeech:\n",
    "\n",
    *(f"<|speaker:{speaker}|>" for speaker in range(8)),
]
CONTROL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|pad|> <|phoneme_start|> <|phoneme_end|> <|text|> <|voice|> <|interleave|> "
    "<|audio_start|> <|audio_end|> <|audio_pad|>"
).split()
SEMANTIC = [f"<|semantic:{code}|>" for code in range(CODES)]

SLOW = {"n_layer": 5, "n_head": 4, "n_local_heads": 2, "head_dim": 64, "dim": 256, "intermediate_size": 640}
FAST = {"n_layer": 2, "n_head": 4, "n_local_heads": 2, "head_dim": 32, "dim": 128, "intermediate_size": 384}
_STACK = {
    "norm_eps": 1e-6,
    "rope_base": 10000.0,
    "attention_qkv_bias": False,
    "attention_o_bias": False,
    "attention_qk_norm": True,
}
CONTEXT = 4096  # positions


def build_tokenizer() -> Tokenizer:
    """Builds a letter tokenizer: lower case, no accents; any character outside LETTERS becomes a space."""
    tokenizer = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(LETTERS)}, unk_token=" "))
    marks = [
        normalizers.Replace("\u2019", "'"),
        normalizers.Replace("\u2014", ", "),
        normalizers.Replace("\u2013", "-"),
    ]
    plain = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    tokenizer.normalizer = normalizers.Sequence([*plain, *marks])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in PHRASES])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in (*CONTROL, *SEMANTIC)])
    return tokenizer


def write_configuration(directory: Path) -> None:
    """Writes tokenizer.json, config.json and codec_config.json, as the gateway and the workers read them."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    files = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|pad|>",
            "model_max_length": CONTEXT,
        },
        "config.json": _model_config(tokenizer.get_vocab()),
    }
    for name, content in files.items():
        _write(directory / name, content)
    write_codec_configuration(directory)


def write_codec_configuration(directory: Path) -> None:
    """Writes codec_config.json of the recipe's codec."""
    _write(directory / "codec_config.json", _codec_config())


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def _model_config(ids: dict[str, int]) -> dict[str, Any]:
    common = {**_STACK, "dropout": 0.0}
    return {
        "architectures": ["FishQwen3OmniForCausalLM"],
        "model_type": "fish_qwen3_omni",
        "dtype": "float16",
        "pad_token_id": ids["<|pad|>"],
        "eos_token_id": ids["<|im_end|>"],
        "audio_pad_token_id": ids["<|audio_pad|>"],
        "semantic_start_token_id": ids[SEMANTIC[0]],
        "semantic_end_token_id": ids[SEMANTIC[-1]],
        "text_config": {
            "model_type": "fish_qwen3",
            "vocab_size": len(ids),
            **SLOW,
            **common,
            "max_seq_len": CONTEXT,
            "tie_word_embeddings": True,
        },
        "audio_decoder_config": {
            "model_type": "fish_qwen3_audio_decoder",
            "vocab_size": CODES,
            **FAST,
            **common,
            "text_dim": SLOW["dim"],
            "num_codebooks": 10,
            "max_seq_len": 11,
            "tie_word_embeddings": False,
        },
    }


def _codec_config() -> dict[str, Any]:
    quantizer = CODEC.quantizer
    return {
        "sample_rate": CODEC.sample_rate,
        "samples_per_frame": CODEC.hop,
        "encoder_dim": CODEC.encoder_dim,
        "encoder_rates": CODEC.encoder_rates,
        "encoder_transformer": None,
        "latent_dim": CODEC.latent_dim,
        "decoder_dim": CODEC.decoder_dim,
        "decoder_rates": CODEC.decoder_rates,
        "quantizer": {name: _plain(getattr(quantizer, name)) for name in quantizer.__struct_fields__},
        "rope_base": CODEC.rope_base,
        "norm_eps": CODEC.norm_eps,
    }


def _plain(value: Any) -> Any:
    fields = getattr(value, "__struct_fields__", None)
    return {name: getattr(value, name) for name in fields} if fields else value
