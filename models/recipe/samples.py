"""Samples of a running server: a sentence by each bundled voice as a WAV, and the spectrograms of both.

Start the server (``deploy/run_all.sh``), then ``python -m models.recipe.samples``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import soundfile
import torch
from matplotlib import pyplot

from common.messages import Array
from models.recipe.export import REFERENCE_VOICES
from models.recipe.features import magnitudes
from models.recipe.flite import SAMPLE_RATE
from models.recipe.server import Server

TEXT = "The tide comes in, and a thousand small fish turn as one."
WINDOW = 512  # samples
DARKEST = -70.0  # dB below the loudest


def draw(sounds: dict[str, Array], path: Path) -> None:
    """Draws the spectrograms in one column with a shared time axis."""
    figure, rows = pyplot.subplots(len(sounds), 1, figsize=(9, 2 * len(sounds)), sharex=True, squeeze=False)
    for axes, (name, sound) in zip(rows[:, 0], sounds.items(), strict=True):
        levels = 20 * magnitudes(torch.from_numpy(sound)[None], WINDOW, WINDOW // 4)[0].log10()
        extent = (0, len(sound) / SAMPLE_RATE, 0, SAMPLE_RATE / 2000)
        axes.imshow(levels - levels.max(), vmin=DARKEST, cmap="magma", origin="lower", aspect="auto", extent=extent)
        axes.set_ylabel(f"{name}, kHz")
        axes.spines[["top", "right"]].set_visible(False)
    rows[-1, 0].set_xlabel("seconds")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the running server")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--output", type=Path, default=Path("docs/samples"), help="folder of the WAVs")
    parser.add_argument("--picture", type=Path, default=Path("docs/images/spectrogram.png"))
    options = parser.parse_args()
    sounds = {name: Server(options.url, {"reference_id": name})(options.text) for name in REFERENCE_VOICES}
    options.output.mkdir(parents=True, exist_ok=True)
    for name, sound in sounds.items():
        soundfile.write(options.output / f"{name}.wav", sound, SAMPLE_RATE)
    draw(sounds, options.picture)


if __name__ == "__main__":
    main()
