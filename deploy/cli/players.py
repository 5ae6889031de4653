"""Players: programs that play headerless PCM from standard input; the first installed one is used."""

from __future__ import annotations

import shutil

PLAYERS = {
    "aplay": "-q -t raw -f S16_LE -r {rate} -c 1 -",
    "pacat": "--playback --raw --format=s16le --rate={rate} --channels=1",
    "ffplay": "-loglevel error -nodisp -autoexit -f s16le -sample_rate {rate} -i -",
    "play": "-q -t raw -e signed -b 16 -r {rate} -c 1 -",
}
PACKAGES = "alsa-utils (aplay), pulseaudio-utils (pacat), ffmpeg (ffplay) or sox (play)"


def find() -> str | None:
    """Return the name of an installed player."""
    return next((name for name in PLAYERS if shutil.which(name)), None)


def command(name: str, rate: int) -> list[str]:
    """Return the command line that plays 16-bit mono at a rate."""
    return [name, *PLAYERS[name].format(rate=rate).split()]
