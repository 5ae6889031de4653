"""Ownership of voices: decides which clients see, list and change a voice.

``private`` voices exist only for their owner, ``unlist`` ones can be used by anyone who knows the id, ``public`` ones
are listed as well. A voice without an owner is public. An admin sees and changes every voice.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import RequestError
from gateway.voices.catalogue import Voice


class Viewer(NamedTuple):
    """A client of the voice library. ``owner``: the name of its API key; "": none."""

    owner: str = ""
    admin: bool = False

    def sees(self, voice: Voice) -> bool:
        """Return whether the client may use a voice whose id it knows."""
        return voice.visibility != "private" or not voice.owner or self.controls(voice)

    def lists(self, voice: Voice) -> bool:
        """Return whether a voice appears in the client's listings."""
        return voice.visibility == "public" or not voice.owner or self.controls(voice)

    def controls(self, voice: Voice) -> bool:
        """Return whether the client may change a voice."""
        return self.admin or (bool(self.owner) and voice.owner == self.owner)

    def check_control(self, voice: Voice, param: str) -> None:
        """Check that the client may change a voice.

        Raises:
            RequestError: it belongs to another key, or to none.
        """
        if not self.controls(voice):
            message = f"{param}: voice {voice.id!r} can be changed by its owner or an admin only"
            raise RequestError("forbidden", "voice_not_owned", message, param)


ADMIN = Viewer(admin=True)
"""Every client of a server without API keys."""
