"""The Dual-AR model in training: whole sequences at once, under the flat parameter names of the AR worker.

Shapes: B rows, T positions, N frames, C codebooks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ar_worker.model import rotary_table
from common.checkpoint import ModelConfig, StackConfig
from models.recipe.codec import LATENTS_PER_FRAME
from models.recipe.flite import PHONES
from vocoder_worker.transformer import FeedForward

ALIGNED_LAYERS = (1, 2)  # the first head of each is taught to look at the letter that is being spoken
PHONE_LAYER = 3  # behind this one, the phones of the frame to come can be read off


class Attention(nn.Module):
    """Causal grouped-query attention with normed queries and keys."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.n_head, config.n_kv_head, config.head_dim
        width = config.n_head * config.head_dim
        self.wqkv = nn.Linear(config.dim, width + 2 * config.n_kv_head * config.head_dim, bias=False)
        self.wo = nn.Linear(width, config.dim, bias=False)
        self.q_norm = nn.RMSNorm(config.head_dim, config.norm_eps)
        self.k_norm = nn.RMSNorm(config.head_dim, config.norm_eps)

    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """[B, T, dim] to the same, and the scores of the first head [B, T, T]."""
        qkv = self.wqkv(x).unflatten(2, (-1, self.head_dim))
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], 2)
        q = _rotated(self.q_norm(q), rotation).transpose(1, 2) / math.sqrt(self.head_dim)
        k, v = _rotated(self.k_norm(k), rotation).transpose(1, 2), v.transpose(1, 2)
        shared = self.heads // self.kv_heads
        scores = q.unflatten(1, (self.kv_heads, shared)) @ k.unsqueeze(2).transpose(-1, -2) + mask
        y = (scores.softmax(-1) @ v.unsqueeze(2)).flatten(1, 2).transpose(1, 2).flatten(2)
        return self.wo(y), scores[:, 0, 0]


def _rotated(x: Tensor, rotation: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotation[: x.shape[1], None]).flatten(-2)


class Block(nn.Module):
    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.dim, config.norm_eps)
        self.feed_forward = FeedForward(config.dim, config.intermediate_size)

    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        attended, scores = self.attention(self.attention_norm(x), rotation, mask)
        x = x + attended
        return x + self.feed_forward(self.ffn_norm(x)), scores


class SlowOutput(NamedTuple):
    """What the slow stack says at each position."""

    logits: Tensor  # [B, T, codes + 1], the semantic codes and the end
    hidden: Tensor  # [B, T, dim], the input of the fast stack
    phone_logits: Tensor  # [B, T, 4, phones]
    scores: list[Tensor]  # [B, T, T] of the aligned heads, before the softmax


class DualAR(nn.Module):
    """Both stacks, and a head for phones that only training uses."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        slow, fast, codes = config.slow, config.fast, config.codebook_size
        self.embeddings = nn.Embedding(config.vocab_size, slow.dim)
        self.codebook_embeddings = nn.Embedding(codes * config.num_codebooks, slow.dim)
        self.layers = nn.ModuleList(Block(slow) for _ in range(slow.n_layer))
        self.norm = nn.RMSNorm(slow.dim, slow.norm_eps)
        self.fast_project_in = nn.Linear(slow.dim, fast.dim)
        self.fast_embeddings = nn.Embedding(codes, fast.dim)
        self.fast_layers = nn.ModuleList(Block(fast) for _ in range(fast.n_layer))
        self.fast_norm = nn.RMSNorm(fast.dim, fast.norm_eps)
        self.fast_output = nn.Linear(fast.dim, codes, bias=False)
        self.phone_head = nn.Linear(slow.dim, LATENTS_PER_FRAME * len(PHONES))
        device = torch.get_default_device()
        self._slow_rotation = rotary_table(2048, slow.head_dim, slow.rope_base, device)
        self._fast_rotation = rotary_table(config.num_codebooks, fast.head_dim, fast.rope_base, device)
        self._offsets = torch.arange(config.num_codebooks) * codes
        self._winners = torch.tensor([*range(config.semantic_begin_id, config.semantic_end_id + 1), config.im_end_id])
        self._initialize()

    def _initialize(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                branch_end = name.endswith(("wo.weight", "w2.weight"))
                std = 0.04 if "embeddings" in name else (0.5 if branch_end else 1.0) / math.sqrt(parameter.shape[1])
                nn.init.normal_(parameter, std=std)

    def embed(self, prompt: Tensor) -> Tensor:
        """int64 [B, 11, T], a token and the ten codes of its frame: [B, T, dim]."""
        tokens, codes = prompt[:, 0], prompt[:, 1:].transpose(1, 2)
        text = self.embeddings(tokens)
        flat = (codes + self._offsets).flatten(0, 1)
        frames = F.embedding_bag(flat, self.codebook_embeddings.weight, mode="sum").unflatten(0, tokens.shape)
        audio = (text + frames) / math.sqrt(self.config.num_codebooks + 1)
        is_audio = (tokens >= self.config.semantic_begin_id) & (tokens <= self.config.semantic_end_id)
        return torch.where(is_audio[..., None], audio, text)

    def slow(self, prompt: Tensor) -> SlowOutput:
        """Prompts int64 [B, 11, T], padded on the right."""
        x, length = self.embed(prompt), prompt.shape[2]
        mask = torch.full((length, length), -1e9).triu(1)
        aligned, phones = [], x
        for index, layer in enumerate(self.layers):
            x, scores = layer(x, self._slow_rotation, mask)
            if index in ALIGNED_LAYERS:
                aligned.append(scores)
            if index == PHONE_LAYER:
                phones = x
        hidden = self.norm(x)
        logits = F.linear(hidden, self.embeddings.weight[self._winners])
        return SlowOutput(logits, hidden, self.phone_head(phones).unflatten(2, (-1, len(PHONES))), aligned)

    def fast(self, hidden: Tensor, codes: Tensor) -> Tensor:
        """hidden [N, dim] and the codes int64 [N, C] of the same frames: logits of codebooks 1 to C - 1."""
        x = torch.cat([self.fast_project_in(hidden).unsqueeze(1), self.fast_embeddings(codes[:, :-1])], 1)
        mask = torch.full((codes.shape[1], codes.shape[1]), -1e9).triu(1)
        for layer in self.fast_layers:
            x, _ = layer(x, self._fast_rotation, mask)
        return self.fast_output(self.fast_norm(x[:, 1:]))
