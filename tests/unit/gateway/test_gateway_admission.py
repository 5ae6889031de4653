"""What holds for every request: repeated ones, pages of other origins, bodies that come slowly, and bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest
from gateway_fakes import HOP, Client, Player, codes, eventually, run, serving, tone
from test_gateway_reference_audio import encoded
from test_gateway_reference_audio import tone as clip_tone

from common.messages import Array, Failure, Submit
from gateway.engine.errors import EngineError

PAGE = "https://page.example"


# Idempotency-Key ------------------------------------------------------------------------------------------------------


def hang(frames: int, begun: asyncio.Event) -> Callable[[Player], Coroutine[Any, Any, None]]:
    """A plan: so many frames, and then nothing for a long time."""

    async def plan(player: Player) -> None:
        if frames:
            player.give(frames)
        begun.set()
        await asyncio.sleep(60)

    return plan


async def speak(client: Client, key: str | None, **headers: str) -> tuple[int, bytes]:
    headers |= {} if key is None else {"Idempotency-Key": key}
    async with client.post("/v1/tts", json={"text": "hello", "format": "pcm"}, headers=headers) as reply:
        return reply.status, await reply.read()


def test_a_repeated_request_takes_over_before_the_first_has_begun(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            begun = asyncio.Event()
            plan, client.engine.plan = client.engine.plan, hang(0, begun)
            first = asyncio.create_task(speak(client, "k"))
            await begun.wait()
            client.engine.plan = plan
            status, body = await speak(client, "k")
            assert (status, len(body)) == (200, 3 * HOP * 2)
            status, body = await first
            assert (status, msgspec.json.decode(body)["error"]["code"]) == (409, "superseded")
            assert client.engine.closed == ["cancelled", None]
            assert client.gateway.idempotency._running == {}

    run(test)


def test_a_repeated_request_breaks_off_the_sound_of_the_first(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            begun = asyncio.Event()
            plan, client.engine.plan = client.engine.plan, hang(1, begun)
            first = asyncio.create_task(speak(client, "k"))
            await begun.wait()
            await eventually(lambda: client.gateway.metrics.audio_bytes._value.get() > 0)
            client.engine.plan = plan
            assert (await speak(client, "k"))[0] == 200
            with pytest.raises(aiohttp.ClientError):
                await first
            assert client.engine.closed == ["cancelled", None]

    run(test)


def test_the_place_of_the_first_is_free_for_the_second(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "keys.toml").write_text('[[key]]\nname = "a"\nkey = "x"\nconcurrency = 1\n')
        async with serving(tmp_path, api_keys_file=str(tmp_path / "keys.toml")) as client:
            plan = client.engine.plan
            key = {"Authorization": "Bearer x"}
            running = []
            for _ in range(2):
                begun = asyncio.Event()
                client.engine.plan = hang(0, begun)
                running.append(asyncio.create_task(speak(client, "k", **key)))
                await begun.wait()
            client.engine.plan = plan
            assert (await speak(client, "k", **key))[0] == 200
            assert [(await task)[0] for task in running] == [409, 409]

    run(test)


def test_others_are_left_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            results = await asyncio.gather(*(speak(client, key) for key in ("a", "b", None, None, "")))
            assert [status for status, _ in results] == [200] * 5
            assert [(await speak(client, "a"))[0] for _ in range(2)] == [200] * 2
            assert (await speak(client, "x" * 256))[0] == 400

    run(test)


# Pages of other origins -----------------------------------------------------------------------------------------------


def test_only_listed_origins_may_read_and_ask(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, cors_origins=[PAGE]) as client:
            for origin, allowed in ((PAGE, True), ("https://other.example", False)):
                headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
                async with client.http.options("/v1/tts", headers=headers) as reply:
                    assert reply.status == 204
                    assert ("Access-Control-Allow-Origin" in reply.headers) == allowed
                    granted = reply.headers.get("Access-Control-Allow-Headers", "")
                    assert ("Idempotency-Key" in granted and "Authorization" in granted) == allowed
                    assert set(reply.headers.getall("Vary")) == {"Origin", "Access-Control-Request-Headers"}
                async with client.post("/v1/tts", json={"text": "hello"}, headers={"Origin": origin}) as reply:
                    assert reply.status == (200 if allowed else 403)
                    assert (reply.headers.get("Access-Control-Allow-Origin") == origin) == allowed
                    assert ("X-Seed" in reply.headers.get("Access-Control-Expose-Headers", "")) == allowed
                async with client.post("/v1/tts", json={}, headers={"Origin": origin}) as reply:
                    assert (reply.headers.get("Access-Control-Allow-Origin") == origin) == allowed

    run(test)


def test_any_origin_may_be_allowed_and_by_default_none_is(tmp_path: Path) -> None:
    async def test() -> None:
        for origins, allowed in (["*"], PAGE), ([], None):
            async with (
                serving(tmp_path, cors_origins=origins) as client,
                client.get("/v1/references/list", headers={"Origin": PAGE}) as reply,
            ):
                assert reply.headers.get("Access-Control-Allow-Origin") == allowed
                assert ("Vary" in reply.headers) == (allowed is not None)

    run(test)


@pytest.mark.parametrize(
    ("site", "origins", "status"),
    [("cross-site", [], 403), ("same-site", [], 403), ("cross-site", [PAGE], 200), ("same-origin", [], 200)],
)
def test_forms_and_sockets_of_other_pages_are_refused(
    tmp_path: Path, site: str, origins: list[str], status: int
) -> None:
    """A browser sends both without asking first; it says itself where the page is from."""

    async def test() -> None:
        async with serving(tmp_path, cors_origins=origins) as client:
            headers = {"Sec-Fetch-Site": site, "Origin": PAGE}
            form = aiohttp.FormData({"text": "hello"}, default_to_multipart=True)
            async with client.post("/v1/tts", data=form, headers=headers) as reply:
                assert reply.status == status
            headers |= {"Connection": "Upgrade", "Upgrade": "websocket"}
            async with client.get("/v1/health", headers=headers) as reply:
                assert reply.status == status
            async with client.get("/v1/health", headers={"Sec-Fetch-Site": site}) as reply:
                assert reply.status == 200

    run(test)


# Bodies ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
def test_a_body_that_comes_too_slowly_is_given_up(tmp_path: Path, kind: str) -> None:
    async def drip() -> Any:
        while True:
            yield b"--x\r\n"
            await asyncio.sleep(0.05)

    async def test() -> None:
        async with serving(tmp_path, body_timeout=0.2) as client:
            async with client.post("/v1/tts", data=drip(), headers={"Content-Type": kind}) as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (408, "body_timeout")
                assert reply.headers["Connection"] == "close"
            await asyncio.wait_for(client.gateway.idle.wait(), 1)

    run(test)


def test_a_form_is_bounded_in_bytes_and_parts(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_body_bytes=100_000) as client:
            for path in ("/v1/tts", "/model", "/v1/references/add"):
                form = aiohttp.FormData(default_to_multipart=True)
                form.add_field("audio", bytes(200_000), filename="upload")
                async with client.post(path, data=form) as reply:
                    assert (reply.status, (await reply.json())["error"]["code"]) == (413, "payload_too_large")
            body = b"".join(b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' for _ in range(1500))
            headers = {"Content-Type": "multipart/form-data; boundary=x"}
            async with client.post("/v1/tts", data=body + b"--x--", headers=headers) as reply:
                assert reply.status in (400, 413)

    run(test)


def test_headers_are_bounded(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for headers in ({"X-A": "x" * 40_000}, {f"X-{number}": "x" for number in range(500)}):
                async with client.post("/v1/tts", json={"text": "x"}, headers=headers) as reply:
                    assert reply.status in (400, 431)
            assert client.engine.submitted == []

    run(test)


# The codec by itself --------------------------------------------------------------------------------------------------


async def packed(client: Client, path: str, **fields: Any) -> tuple[int, Any]:
    headers = {"Content-Type": "application/msgpack"}
    async with client.post(path, data=msgspec.msgpack.encode(fields), headers=headers) as reply:
        body = await reply.read()
        return reply.status, msgspec.msgpack.decode(body) if reply.status == 200 else msgspec.json.decode(body)


def test_recordings_become_codes(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            clips = [encoded(clip_tone(seconds)) for seconds in (1.2, 1.5)]
            status, reply = await packed(client, "/v1/vqgan/encode", audios=clips)
            frames = [-(-len(samples) // HOP) for samples in client.engine.encoded]
            assert (status, [np.shape(rows) for rows in reply["tokens"]]) == (200, [(10, count) for count in frames])
            for param, audios in (("audios", None), ("audios", 5), ("audios[0]", ["x"]), ("audios[0]", [b"x"])):
                status, body = await packed(client, "/v1/vqgan/encode", audios=audios)
                assert (status, body["error"]["param"]) == (400, param)

    run(test)


class Decoder:
    """Gives the sound of codes, as the engine is to do."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.given: list[Array] = []

    def submit_codes(self, request: str, client: str, given: Array) -> Any:
        if self.client.engine.failure is not None:
            raise EngineError(self.client.engine.failure)
        self.given.append(given)

        async def plan(player: Player) -> None:
            player.give(given.shape[1])
            player.end()

        self.client.engine.plan = plan
        submit = Submit(request, "audio", False, None, given.shape[1], [1], None, client)  # type: ignore[arg-type]
        return self.client.engine.submit(submit, given)


def test_codes_become_samples(tmp_path: Path) -> None:

    async def test() -> None:
        async with serving(tmp_path) as client:
            decoder = Decoder(client)
            client.engine.submit_codes = decoder.submit_codes  # type: ignore[attr-defined]
            rows = codes(4).T
            status, reply = await packed(client, "/v1/vqgan/decode", tokens=[rows.tolist()])
            assert status == 200
            np.testing.assert_array_equal(decoder.given[0], rows)
            np.testing.assert_allclose(np.frombuffer(reply["audios"][0], "<f2"), tone(4), atol=1e-3)
            assert client.engine.credit[-1] == 4
            bad: list[Any] = [5, [], [[1]], [[1]] * 9, [[]] * 10, [[1.5]] * 10, [[-1]] * 10, [[10**6]] * 10]
            bad += [[[1]] * 9 + [[1, 2]], [["x"]] * 10, [[2**63]] * 10]
            for rows_sent in bad:
                status, body = await packed(client, "/v1/vqgan/decode", tokens=[rows_sent])
                assert (status, body["error"]["param"]) == (400, "tokens[0]"), rows_sent
            status, body = await packed(client, "/v1/vqgan/decode", tokens=[[[0] * 5000] * 10])
            assert (status, body["error"]["param"]) == (400, "tokens")
            client.engine.failure = Failure(503, "not_ready", "no vocoder", retry_after=2)
            assert (await packed(client, "/v1/vqgan/decode", tokens=[rows.tolist()]))[0] == 503

    run(test)
