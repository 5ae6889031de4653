"""Measurement of one stream as its listener hears it."""

from __future__ import annotations

from dataclasses import dataclass, field

from deploy.cli.sound import SoundStream

PLAYABLE_SECONDS = 0.1  # sound that a player has in hand before it begins
UNDERRUN_SECONDS = 0.001  # shorter ones can't be heard


@dataclass
class Heard:
    """Measurements of one request. Times are in seconds since it was sent, unless stated otherwise.

    ``status`` 0: no reply. ``error``: why it counts as failed, "" for a whole stream with sound in it. ``gaps``:
    between pieces of sound. ``underrun``: how long a listener who began at first audio would have stood still; each
    halt shifts the clock of what follows.
    """

    status: int = 0
    error: str = ""
    first_byte: float = 0.0
    first_audio: float = 0.0
    first_playable: float = 0.0
    total: float = 0.0
    audio_seconds: float = 0.0
    underrun: float = 0.0
    gaps: list[float] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether the server refused for lack of room."""
        return self.status in (429, 503)

    @property
    def real_time_factor(self) -> float:
        """Real-time factor: time to the end per second of sound; below 1 the server is faster than the listener."""
        return self.total / self.audio_seconds


class Listener:
    """Fills a :class:`Heard` from bytes and their arrival times (seconds since the request was sent)."""

    def __init__(self, heard: Heard, sound: SoundStream) -> None:
        self._heard, self._sound = heard, sound
        self._last: float | None = None
        self._supplied_until = 0.0

    def receive(self, data: bytes, now: float) -> None:
        """Raises SoundError: the bytes are not what was asked for."""
        heard = self._heard
        heard.first_byte = heard.first_byte or now
        new = self._sound.feed(data)
        if not new:
            return
        if self._last is None:
            heard.first_audio = self._supplied_until = now
        else:
            heard.gaps.append(now - self._last)
            late = max(0.0, now - self._supplied_until)
            heard.underrun += late
            self._supplied_until += late
        self._last = now
        self._supplied_until += new / self._sound.bytes_per_second
        if not heard.first_playable and self._sound.seconds >= PLAYABLE_SECONDS:
            heard.first_playable = now

    def end(self, now: float) -> None:
        """Record a clean end of the reply."""
        heard = self._heard
        heard.total, heard.audio_seconds = now, self._sound.seconds
        heard.first_playable = heard.first_playable or now  # a sound shorter than what players wait for
        if not heard.audio_seconds:
            heard.error = "no sound in the reply"
