"""Playback state of one request: its frames' way from the vocoder to the listener's ears."""

from __future__ import annotations


class Playback:
    """Cumulative frame counts and the playback clock of a listener who began at the first sound.

    ``sent``: frames sent to the vocoder worker that serves the request now. ``delivered``: frames whose sound is with
    the gateway. ``read``: frames that the client has read. Changed by the planner of calls, by their results, and by
    credit.
    """

    def __init__(self, arrived: float) -> None:
        self.sent = 0
        self.delivered = 0
        self.read = 0
        self.play_end: float | None = None  # when the listener has played all delivered sound; None before the first
        self.last_sent_at = arrived

    def send(self, frames: int, now: float) -> None:
        """Frames go into a vocoder call."""
        self.sent += frames
        self.last_sent_at = now

    def deliver(self, frame: int, now: float, frame_seconds: float) -> None:
        """Sound up to ``frame`` is with the gateway. Frames delivered before, by another worker, don't count again."""
        if frame > self.delivered:
            start = now if self.play_end is None else max(self.play_end, now)
            self.play_end = start + (frame - self.delivered) * frame_seconds
            self.delivered = frame

    def credit(self, frame: int) -> None:
        """The client has read up to ``frame``, which may be known before the vocoder's result is."""
        self.read = min(max(self.read, frame), max(self.sent, self.delivered))

    def restart(self) -> None:
        """The stream's state is lost: all frames must be sent again."""
        self.sent = 0

    def rewind(self, frame: int) -> None:
        """Sound from ``frame`` on was lost on its way to the gateway."""
        self.delivered = frame
        self.sent = 0
