"""What the core tells whoever wants to count: metrics in the server, nothing in most tests."""

from __future__ import annotations

from common.messages import FinishReason


class Observer:
    """Does nothing; override what you want to know. Times in seconds."""

    def admitted(self, waited: float, prompt_tokens: int, cached_tokens: int) -> None:
        """A request left the queue; so much of its prompt was in the prefix cache."""

    def prefilled(self, seconds: float) -> None:
        """A request's prompt is done: its first frame, or end, was drawn so long after it was admitted."""

    def stalled(self) -> None:
        """Codes had to wait for a client that left too much sound unread, and has now read some."""

    def recovered(self) -> None:
        """A request that had lost a worker has another."""

    def ended(self, reason: FinishReason) -> None:
        """A request ended, or was refused."""

    def stepped(self, duration: float, rows: int, prefill_tokens: int) -> None:
        """A step was answered."""

    def called(self, duration: float, streams: int, frames: int) -> None:
        """A vocoder call was answered."""
