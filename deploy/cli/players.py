"""Programs that play bare PCM from their standard input; the first that is installed is taken."""

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
    """The name of a player that is installed."""
    return next((name for name in PLAYERS if shutil.which(name)), None)


def command(name: str, rate: int) -> list[str]:
    """The command line that plays 16-bit mono of that rate."""
    return [name, *PLAYERS[name].format(rate=rate).split()]
