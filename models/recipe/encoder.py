"""Step 6, the encoder: codes from samples, for reference voices.

``python -m models.recipe.encoder`` teaches the convolutional encoder to say from samples what the front end says from
log-mels, and adapts the layers up to the quantizer to it. The codebooks and all that decodes stay as they are; where
the encoder can't choose the front end's codes, it learns to choose others that sound alike. What comes out is the mean
of the weights at the ends of two cycles of the learning rate: it agrees with the front end more often than either.
"""

from __future__ import annotations

import copy
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from models.recipe.codec import LATENT_HOP, Codec, WholeRows
from models.recipe.features import causal_log_mels
from models.recipe.quantizer import Crops, quantized
from models.recipe.settings import Settings, parse_settings
from models.recipe.snake import for_training
from models.recipe.training import Run, cosine, on_device, trained

FRAMES, ROWS = 24, 3
CYCLES = 2
HARDER = 0  # of the voices: its codes are harder to tell from samples
SHARPNESS = 12.0  # of the softmax over cosines by which codes are compared


class Student(nn.Module):
    """The trained encoder: the codec's own encoder and its layers up to the quantizer."""

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.encoder = codec.encoder.encoder
        self.downsample = copy.deepcopy(codec.encoder.quantizer.downsample)
        self.pre_module = copy.deepcopy(codec.encoder.quantizer.pre_module)


class Averaged(nn.Module):
    """A student, and the mean of its weights at the ends of learning-rate cycles."""

    def __init__(self, student: Student) -> None:
        super().__init__()
        self.student, self.mean = student, AveragedModel(student)


def mean_student(state: dict[str, Tensor], codec: Codec) -> Student:
    """Loads the result from the modules of ``encoder.pt``."""
    averaged = Averaged(Student(codec))
    averaged.load_state_dict(state)
    return cast(Student, averaged.mean.module)


def cycles(progress: float) -> float:
    return cosine(progress * CYCLES % 1.0)


def relative_error(made: Tensor, wanted: Tensor) -> Tensor:
    """Mean squared error divided by the variance of the target."""
    return F.mse_loss(made, wanted) / wanted.var()


def code_losses(codec: Codec, pooled: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Log-likelihood of each code, given the correct codes before it.

    pooled [B, latent_dim, F], codes int64 [B, C, F].

    Returns:
        cross-entropies [C], and the share of semantic codes that come out right.
    """
    quantizer = codec.encoder.quantizer
    books = [*quantizer.semantic_quantizer.quantizers, *quantizer.quantizer.quantizers]
    losses: list[Tensor] = []
    rest, agreed = pooled, pooled.new_zeros(())
    for book, code in zip(books, codes.unbind(1), strict=True):
        z = F.normalize(book.in_proj(rest).transpose(1, 2), dim=-1)
        cosines = z @ F.normalize(book.codebook.weight).t()
        if not losses:
            agreed = (cosines.argmax(-1) == code).float().mean()
        losses.append(F.cross_entropy(SHARPNESS * cosines.flatten(0, 1), code.flatten()))
        rest = rest - book.out_proj(book.codebook(code).transpose(1, 2))
    return torch.stack(losses), agreed


def encoder_loss(codec: Codec, student: Student, sound: Tensor, phones: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Relative errors of the latents at both rates, cross-entropies of the codes, and what the quantizer itself learned
    by: how well mels and phones are told from the codes that the student chooses."""
    batch, quantizer = WholeRows(len(sound)), codec.encoder.quantizer
    mels = causal_log_mels(sound, LATENT_HOP)
    with torch.no_grad():
        wanted = codec.front_end(mels, batch)
        wanted_pooled = codec.pooled(wanted, batch)
        codes = quantizer.nearest_codes(wanted_pooled)
    made = student.encoder(sound.unsqueeze(1), batch)
    pooled = student.pre_module(student.downsample(made, batch), batch)
    latent, before = relative_error(made, wanted), relative_error(pooled, wanted_pooled)
    losses, agreed = code_losses(codec, pooled, codes)
    chosen = quantized(codec, pooled, mels, phones)
    values = {"latent": latent, "pooled": before, "residual": losses[1:].mean(), "agreed": agreed, **chosen.values}
    return latent + before + 0.3 * losses[0] + 0.3 * losses[1:].mean() + chosen.loss, values


@on_device
def make(settings: Settings) -> None:
    torch.manual_seed(settings.seed)
    codec = Codec().eval().requires_grad_(False)
    codec.load_state_dict(trained(settings.work / "quantizer.pt"))
    student = Student(codec).requires_grad_(True)
    for_training(student)
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3, betas=(0.8, 0.98), weight_decay=0.0)
    crops = Crops(settings, often=HARDER)
    averaged = Averaged(student)
    run = Run(settings, "encoder", settings.encoder_steps, averaged, [optimizer])
    for step, rng in run.each_step(cycles):
        sound, phones = crops.draw(rng, ROWS, FRAMES)
        loss, values = encoder_loss(codec, student, sound, phones)
        run.update(loss, student.parameters(), 1.0, **values)
        if (step + 1) % (settings.encoder_steps // CYCLES) == 0:
            averaged.mean.update_parameters(student)


if __name__ == "__main__":
    make(parse_settings(__doc__))
