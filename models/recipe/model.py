"""Step 4, the model: the Dual-AR transformer learns to speak in the codes of the quantizer.

``python -m models.recipe.model`` trains on all encoded shards. Beside the codes it learns which letter is being
spoken (two attention heads are shown it) and which phones come next: on a small corpus both are found much sooner
when they are told.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from common.checkpoint import load_model_config
from gateway.checkpoint.prompt import Prompts
from models.recipe.conversations import NOTHING, SHAPES, SINGLE, Batch, Conversations
from models.recipe.corpus import Shard, shard_paths
from models.recipe.dual_ar import DualAR, SlowOutput
from models.recipe.encode import codes_path
from models.recipe.muon import Muon
from models.recipe.settings import Settings, parse_settings
from models.recipe.tokenizer import write_configuration
from models.recipe.training import Run, on_device, plateau, together

POSITIONS = 4400  # of a batch
FAST_SHARE = 0.4  # of the frames of a batch are learned by the fast stack
SINGLE_UNTIL = 0.15  # of the run is spent on single utterances, at first short ones
PHONE_WEIGHT, ALIGNMENT_WEIGHT = 0.3, 0.3


def alignment_loss(scores: Tensor, batch: Batch, frames: Tensor) -> Tensor:
    """Cross-entropy of an attention head against a bell curve of one letter's width around the letter being spoken.

    scores [B, T, T] before the softmax; frames bool [B, T], where a frame comes.
    """
    predicted = scores[frames].log_softmax(-1)
    distance = torch.arange(scores.shape[2]) - batch.letters[frames][:, None]
    wanted = (-0.5 * distance.square()).exp()
    wanted = wanted / wanted.sum(-1, keepdim=True)
    return -(wanted * predicted.clamp(min=-20)).sum(-1).mean()


def model_loss(model: DualAR, batch: Batch, fraction: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss of a batch after ``fraction`` of the run, and its parts."""
    said: SlowOutput = model.slow(batch.prompt)
    frames = batch.letters >= 0
    semantic = F.cross_entropy(said.logits.flatten(0, 1), batch.targets.flatten(), ignore_index=NOTHING)
    places = frames.nonzero()
    chosen = places[torch.randperm(len(places))[: int(len(places) * FAST_SHARE)]].unbind(1)
    codes = batch.codes[chosen]
    residual = F.cross_entropy(model.fast(said.hidden[chosen], codes).flatten(0, 1), codes[:, 1:].flatten())
    phone = F.cross_entropy(said.phone_logits.flatten(0, 2), batch.phones.flatten(), ignore_index=NOTHING)
    alignment = torch.stack([alignment_loss(scores, batch, frames) for scores in said.scores]).mean()
    guide = ALIGNMENT_WEIGHT * (1.0 if fraction < 0.5 else 0.3)
    loss = semantic + residual + PHONE_WEIGHT * phone + 2 * guide * alignment
    return loss, {"semantic": semantic, "residual": residual, "phone": phone, "alignment": alignment}


def optimizers(model: DualAR) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for the rest."""
    matrices = {name for name, p in model.named_parameters() if "layers." in name and p.dim() == 2}
    inner = [p for name, p in model.named_parameters() if name in matrices]
    outer = [p for name, p in model.named_parameters() if name not in matrices]
    return [
        Muon(inner, lr=3e-3),
        torch.optim.AdamW(outer, lr=3e-3, betas=(0.9, 0.97), weight_decay=0.0),
    ]


def conversations(settings: Settings) -> Conversations:
    checkpoint = settings.work / "checkpoint"
    config = load_model_config(checkpoint)
    shards = [Shard(path) for path in shard_paths(settings.corpus) if codes_path(path).exists()]
    prompts = Prompts(checkpoint, config.semantic_begin_id)
    return Conversations(shards, prompts, config.im_end_id, config.semantic_begin_id)


def make(settings: Settings) -> None:
    write_configuration(settings.work / "checkpoint")
    together(train, settings)


@on_device
def train(settings: Settings) -> None:
    torch.manual_seed(settings.seed)
    model = DualAR(load_model_config(settings.work / "checkpoint"))
    source = conversations(settings)
    run = Run(settings, "model", settings.model_steps, model, optimizers(model))
    for step, rng in run.each_step(plateau):
        fraction = step / run.steps
        shapes = SINGLE if fraction < SINGLE_UNTIL else SHAPES
        batch = source.draw(rng, POSITIONS // run.processes, shapes, longest=min(1.0, 0.3 + 5 * fraction))
        loss, values = model_loss(model, batch, fraction)
        run.update(loss, model.parameters(), 1.0, **values)


if __name__ == "__main__":
    make(parse_settings(__doc__))
