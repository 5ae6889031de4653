"""``POST /v1/codes``: each frame once, in order, then how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from gateway_fakes import Client, codes, fail, post, run, serving, speak

from common.messages import Failure

LOST = Failure(503, "worker_lost", "the worker was lost", retry_after=1)


async def events(client: Client, **fields: Any) -> list[dict[str, Any]]:
    reply, body = await post(client, "/v1/codes", text="hello", **fields)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/event-stream"
    parts = body.split(b"\n\n")
    assert parts.pop() == b""
    return [msgspec.json.decode(part.removeprefix(b"data: ")) for part in parts]


def test_every_frame_comes_once_and_then_the_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(1, 3, 2, reason="length")
            *frames, end = await events(client, format="wav", streaming=False)
            assert [frame["index"] for frame in frames] == list(range(6))
            assert [frame["codes"] for frame in frames] == codes(6).tolist()
            assert end == {"finish_reason": "length", "frames": 6}
            assert client.engine.submitted[0][0].output == "codes"
            assert client.engine.submitted[0][0].deadline is None

    run(test)


def test_a_failure_after_the_first_frame_is_an_event(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = fail(2, LOST)
            *frames, end = await events(client)
            assert len(frames) == 2
            assert (end["finish_reason"], end["frames"], end["error"]["code"]) == ("error", 2, "worker_lost")

    run(test)


def test_a_failure_before_the_first_frame_is_a_status(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = fail(0, LOST)
            reply, body = await post(client, "/v1/codes", text="hello")
            assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
            assert msgspec.json.decode(body)["error"]["code"] == "worker_lost"

    run(test)
