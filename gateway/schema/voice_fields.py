"""Fields of the endpoints that list and name voices."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.voices.catalogue import Visibility

MAX_TEXT = 10_000  # characters of a title or description
MAX_TAGS, MAX_TAG = 100, 200  # tags of a voice, and characters of each


class Listing(Struct, frozen=True):
    """Query of a listing."""

    page_size: Annotated[int, Meta(ge=1, le=1000)] = 10
    page_number: Annotated[int, Meta(ge=1)] = 1
    title: str = ""
    author_id: str = ""
    sort_by: Literal["score", "task_count", "created_at"] = "score"


class Naming(Struct, frozen=True):
    """Form fields that name and describe a voice; None: unchanged."""

    title: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)] | None = None
    description: Annotated[str, Meta(max_length=MAX_TEXT)] | None = None
    visibility: Visibility | None = None
    type: Literal["tts"] = "tts"
