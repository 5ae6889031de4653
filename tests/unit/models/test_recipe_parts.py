"""What the recipe trains is what the server runs: same forward passes, same prompts, targets where the speech is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ar_worker.attention import causal_mask, fold_heads, unfold_heads
from ar_worker.model import Attend, DualAr
from ar_worker.ops import HeadNorm, qk_norm_rope
from ar_worker.rows import RowPolicy
from ar_worker.weights import load_weights
from common.checkpoint import load_model_config
from gateway.checkpoint.prompt import Prompts
from models.recipe import export
from models.recipe.codec import CODEC, Codec, WholeRows
from models.recipe.conversations import SHAPES, Conversations, Shape, Spoken
from models.recipe.decoder import decoded
from models.recipe.dual_ar import DualAR
from models.recipe.encoder import Student, code_losses, encoder_loss
from models.recipe.features import spectral_distance
from models.recipe.muon import orthogonalized
from models.recipe.snake import TrainedSnake
from models.recipe.text import _speakable, _tidy
from models.recipe.tokenizer import write_configuration
from vocoder_worker.layers import Snake
from vocoder_worker.streaming import StreamState

TEXTS = ["hello there.", "where is the train?", "it is late, and we are tired.", "come in."]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    write_configuration(directory)
    return directory


@pytest.fixture(scope="module")
def prompts(checkpoint: Path) -> Prompts:
    return Prompts(checkpoint, load_model_config(checkpoint).semantic_begin_id)


def utterances() -> list[Spoken]:
    rng = np.random.default_rng(0)
    made = []
    for number, text in enumerate(TEXTS):
        frames = 2 * len(text)
        letters = np.linspace(0, len(text) - 1, frames).astype(np.float32)
        codes = rng.integers(512, size=(10, frames)).astype(np.int16)
        made.append(Spoken(text, number % 2, codes, letters, np.zeros((frames, 4), np.int16)))
    return made


@pytest.fixture
def conversations(checkpoint: Path, prompts: Prompts, monkeypatch: pytest.MonkeyPatch) -> Conversations:
    monkeypatch.setattr("models.recipe.conversations.spoken", lambda shard: utterances())
    monkeypatch.setattr("models.recipe.conversations.FRAME_NOISE", 0.0)
    monkeypatch.setattr("models.recipe.conversations.CODE_NOISE", 0.0)
    config = load_model_config(checkpoint)
    return Conversations([None], prompts, config.im_end_id, config.semantic_begin_id)  # type: ignore[list-item]


@pytest.mark.parametrize("shape", sorted(set(SHAPES)))
def test_every_frame_is_learned_and_knows_its_letter(
    conversations: Conversations, prompts: Prompts, shape: Shape
) -> None:
    batch = conversations.draw(np.random.default_rng(3), 40, (shape,))
    said = {one.text: one for one in utterances()}
    ids = [prompts._tokenizer.id_to_token(int(token)) for token in batch.prompt[0, 0]]
    found = 0
    for frame in np.flatnonzero(batch.letters[0] >= 0):
        place = float(batch.letters[0, frame])
        assert ids[round(place)] in "abcdefghijklmnopqrstuvwxyz .,?!"
        assert int(batch.targets[0, frame]) == int(batch.codes[0, frame, 0])
        found += 1
    text = "".join(token for token in ids if len(token) == 1)
    spoken_frames = sum(one.codes.shape[1] * text.count(one.text) for one in said.values())
    assert found == spoken_frames > 0
    assert 512 in batch.targets[0], "the end of speech is learned"


def attend(mask: Tensor, kv_heads: int) -> Attend:
    """Attention over the positions of one sequence, without pages."""

    def over(layer: int, qkv: Tensor, norm: HeadNorm) -> Tensor:
        qk_norm_rope(qkv, kv_heads, norm)
        heads = qkv.shape[1] - 2 * kv_heads
        k, v = qkv[None, :, heads:].transpose(1, 2).chunk(2, 1)
        q = fold_heads(qkv[:, :heads], 1, kv_heads)
        return unfold_heads(F.scaled_dot_product_attention(q, k, v, mask), qkv.shape[0])

    return over


def test_the_model_in_training_is_the_model_that_is_served(checkpoint: Path, conversations: Conversations) -> None:
    torch.manual_seed(0)
    config = load_model_config(checkpoint)
    trained = DualAR(config)
    batch = conversations.draw(np.random.default_rng(1), 40, (Shape(1, 1),))
    torch.save({"modules": trained.state_dict()}, checkpoint / "model.pt")
    export.export_model(checkpoint, checkpoint)
    served_weights = load_weights(checkpoint, config, torch.device("cpu"), torch.float32)
    trained.load_state_dict({name: value.half().float() for name, value in trained.state_dict().items()})

    served = DualAr(config, served_weights, RowPolicy(1), 512)
    length = batch.prompt.shape[2]
    positions = torch.arange(length)
    mask = causal_mask(positions[None], length, config.slow.n_head // config.slow.n_kv_head, torch.float32)
    x = served.slow(served.embed(batch.prompt[0].T), positions, attend(mask, config.slow.n_kv_head))
    logits, hidden = served.head(x)
    with torch.no_grad():
        said = trained.slow(batch.prompt[:1])
        codes = batch.codes[0, -3:]
        residual = trained.fast(said.hidden[0, -3:], codes)
    torch.testing.assert_close(said.logits[0], logits, atol=2e-3, rtol=1e-3)
    first = served.fast_first(hidden[-3:], codes[:, 0], served.frame_attention(3))
    torch.testing.assert_close(residual[:, 0], first, atol=2e-3, rtol=1e-3)


def test_the_codec_in_training_is_the_codec_that_is_served() -> None:
    torch.manual_seed(0)
    codec = Codec().eval()
    codes = torch.randint(512, (2, 10, 7))
    with torch.no_grad():
        quantized = codec.dequantized(codes)
        batch = WholeRows(2)
        whole = codec.decoder.decoder(codec.expanded(quantized, batch), batch)
        state = StreamState(codec.decoder, 2, torch.device("cpu"))
        streamed = []
        for first, frames in ((0, 3), (3, 4)):
            piece = state.batch([0, 1], [frames, frames])
            streamed.append(
                codec.decoder.decoder(codec.expanded(quantized[:, :, first : first + frames], piece), piece)
            )
    torch.testing.assert_close(torch.cat(streamed, 2), whole, atol=1e-5, rtol=1e-5)
    assert whole.shape[2] == 7 * CODEC.hop


def test_the_encoder_is_taught_the_codes_that_the_quantizer_gives() -> None:
    torch.manual_seed(0)
    codec, z = Codec(), torch.randn(2, CODEC.latent_dim, 6)
    codes = codec.encoder.quantizer.nearest_codes(z)
    losses, agreed = code_losses(codec, z, codes)
    assert agreed == 1.0
    others, _ = code_losses(codec, z, codes.roll(1, dims=2))
    assert (losses < others).all()


def test_snake_in_training_has_the_formula_and_its_gradient() -> None:
    torch.manual_seed(0)
    x, upstream = torch.randn(2, 5, 30, dtype=torch.float64), torch.randn(2, 5, 30, dtype=torch.float64)
    results = []
    for kind in (Snake, TrainedSnake):
        layer = kind(5).double()
        with torch.no_grad():
            layer.alpha.uniform_(0.3, 2.0, generator=torch.Generator().manual_seed(1))
        given = x.clone().requires_grad_()
        made = layer(given)
        made.backward(upstream)
        results.append((made.detach(), given.grad, layer.alpha.grad))
    for served, trained in zip(*results, strict=True):
        torch.testing.assert_close(trained, served, atol=1e-6, rtol=1e-6)


def test_muon_brings_matrices_near_orthogonality() -> None:
    torch.manual_seed(0)
    for shape in ((3, 16, 40), (2, 40, 16)):
        values = torch.linalg.svdvals(orthogonalized(torch.randn(*shape)))
        assert values.min() > 0.3
        assert values.max() < 1.6


def test_sentences_are_plain_and_of_known_words() -> None:
    known = frozenset({"the", "cat", "sat", "here"})
    assert _speakable("The cat sat here.", known)
    assert not _speakable("The cat sat herre.", known)
    assert not _speakable("The cat sat 3 times here.", known)
    assert _tidy("\u201cThe  cat\u201d sat , here") == "The cat sat, here"


def test_no_tensor_of_a_step_is_made_on_another_device(checkpoint: Path) -> None:
    """On the device without memory, where a tensor of the CPU in between is an error as it would be on a GPU."""
    with torch.device("meta"):
        model, codec = DualAR(load_model_config(checkpoint)), Codec()
        said = model.slow(torch.zeros(2, 11, 30, dtype=torch.int64))
        assert model.fast(said.hidden[:, 0], torch.zeros(2, 10, dtype=torch.int64)).is_meta
        sound = torch.zeros(2, 16 * CODEC.hop)
        assert spectral_distance(decoded(codec, torch.zeros(2, 10, 16, dtype=torch.int64)), sound[:, -9600:])[0].is_meta
        assert encoder_loss(codec, Student(codec), sound, torch.zeros(2, 64, dtype=torch.int64))[0].is_meta
        assert codec.encode(sound).is_meta
