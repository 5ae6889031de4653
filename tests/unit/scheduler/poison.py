"""Requests at which a decision of the scheduler raises an exception."""

from __future__ import annotations

from typing import NoReturn

from scheduler.requests.request import Request

PLACES = ["history.prompt", "history.codes", "history.append", "playback.play_end", "playback.deliver", "playback.sent"]


class PoisonError(Exception):
    pass


def poison(request: Request, where: str) -> None:
    """Have an attribute of a part of the request fail whenever it is used."""
    part_name, _, attribute = where.partition(".")
    part = getattr(request, part_name)
    if type(part).__name__ == "Poisoned":
        return

    def fail(*_: object) -> NoReturn:
        raise PoisonError(where)

    method = callable(getattr(part, attribute))
    part.__class__ = type("Poisoned", (type(part),), {attribute: fail if method else property(fail, fail)})
