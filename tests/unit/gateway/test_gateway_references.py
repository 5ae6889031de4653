"""References of a request: cached by content alone, encoded once, speaker by speaker, and nothing is ever fetched."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest
from gateway_fakes import HOP, RATE, TINY_MODEL, Client, eventually, post, run, serving
from prometheus_client import CollectorRegistry
from test_gateway_reference_audio import encoded, tone
from test_gateway_voices import add

from common.messages import Array
from gateway.checkpoint.prompt import Reference
from gateway.observe.metrics import GatewayMetrics
from gateway.voices.clips import Clips, digest
from gateway.voices.flights import SingleFlight

CLIPS = [encoded(tone(seconds)) for seconds in (1.2, 1.5, 1.8)]


def inline(number: int, text: str = "said") -> dict[str, str]:
    return {"audio": base64.b64encode(CLIPS[number]).decode(), "text": text}


def frames(number: int) -> int:
    return -(-int((1.2, 1.5, 1.8)[number] * RATE) // HOP)


def expected(references: list[Reference], text: str) -> Array:
    return np.concatenate(TINY_MODEL.prompts.build([text], references), axis=1)


def fake_codes(number: int) -> Array:
    """What the fake engine makes of a clip."""
    return (np.arange(10 * frames(number)).reshape(10, -1) % 50).astype(np.int16)


def test_the_same_clip_is_encoded_once_whoever_sends_it_with_whatever_text(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            bodies = [{"text": "hello", "references": [inline(0, text)]} for text in ("one", "two", "one")]
            replies = await asyncio.gather(*(post(client, **body) for body in bodies))
            assert [reply.status for reply, _ in replies] == [200] * 3
            await post(client, text="hello", references=[inline(0, "three")])
            assert len(client.engine.encoded) == 1
            prompts = sorted(prompt.tobytes() for _, prompt in client.engine.submitted)
            wanted = [
                expected([Reference(text, fake_codes(0))], "hello").tobytes() for text in ("one", "two", "one", "three")
            ]
            assert prompts == sorted(wanted)

    run(test)


def test_an_inline_reference_does_not_touch_a_named_voice(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            await add(client, "a", "named", CLIPS[0])
            for fields in ({"reference_id": "a", "references": [inline(1)]}, {"reference_id": "a"}):
                await post(client, text="hello", **fields)
            await post(client, text="hello", references=[inline(1)])
            named = expected([Reference("named", fake_codes(0))], "hello")
            unnamed = expected([Reference("said", fake_codes(1))], "hello")
            for (_, prompt), wanted in zip(client.engine.submitted, [named, named, unnamed], strict=True):
                np.testing.assert_array_equal(prompt, wanted)

    run(test)


def test_speakers_have_their_voices_by_list(tmp_path: Path) -> None:
    text = "<|speaker:0|>hello<|speaker:1|>you"

    async def test() -> None:
        async with serving(tmp_path) as client:
            await add(client, "a", "first", CLIPS[0])
            await add(client, "b", "second", CLIPS[1])
            await post(client, text=text, reference_id=["a", "b"])
            await post(client, text=text, references=[[inline(0, "first")], [inline(1, "second")]])
            await post(client, text=text, references=[[inline(0, "x"), inline(1, "y")], inline(2, "z")])
            wanted = "<|speaker:0|>hello\n<|speaker:1|>you"
            two = [Reference("<|speaker:0|>first", fake_codes(0)), Reference("<|speaker:1|>second", fake_codes(1))]
            three = [
                Reference("<|speaker:0|>x", fake_codes(0)),
                Reference("<|speaker:0|>y", fake_codes(1)),
                Reference("<|speaker:1|>z", fake_codes(2)),
            ]
            for (_, prompt), references in zip(client.engine.submitted, [two, two, three], strict=True):
                np.testing.assert_array_equal(prompt, expected(references, wanted))

    run(test)


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("reference_id", {"reference_id": ["a", "nobody"]}),
        ("reference_id[1]", {"reference_id": ["a", "../x"]}),
        ("reference_id[0]", {"reference_id": [5]}),
        ("reference_id", {"reference_id": ["a"] * 4}),
        ("references", {"references": [inline(0)] * 4}),
        ("references", {"references": [[inline(0)] * 4]}),
        ("references[0][1].text", {"references": [[inline(0), inline(0, " ")]]}),
        ("references[1][0].audio", {"references": [inline(0), [{"audio": "!", "text": "x"}]]}),
        ("references[0].audio", {"references": [{"audio": "http://127.0.0.1/a.wav", "text": "x"}]}),
        ("references[0].audio", {"references": [{"audio": "file:///etc/passwd", "text": "x"}]}),
        ("references[0].audio", {"references": [{"audio": "data:audio/wav,abc", "text": "x"}]}),
        ("references[0].audio", {"references": [{"audio": "data:audio/wav;base64,http://x", "text": "x"}]}),
        ("references[0].audio", {"references": [{"audio": "/etc/passwd", "text": "x"}]}),
    ],
)
def test_bad_references_are_refused_by_their_place(tmp_path: Path, param: str, fields: dict[str, Any]) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_references=3) as client:
            await add(client, "a", "said", CLIPS[0])
            reply, body = await post(client, text="hello", **fields)
            assert (reply.status, msgspec.json.decode(body)["error"]["param"]) == (400, param), body
            assert client.engine.submitted == []

    run(test)


def test_a_data_uri_is_a_recording(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            reference = inline(0) | {"audio": "data:audio/wav;base64," + inline(0)["audio"]}
            reply, _ = await post(client, text="hello", references=[reference])
            assert (reply.status, len(client.engine.encoded)) == (200, 1)

    run(test)


# Multipart speech requests --------------------------------------------------------------------------------------------


def form(fields: dict[str, Any]) -> aiohttp.FormData:
    data = aiohttp.FormData(default_to_multipart=True)
    for name, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, bytes):
                data.add_field(name, value, filename="clip", content_type="application/octet-stream")
            else:
                data.add_field(name, value)
    return data


async def send(client: Client, **fields: Any) -> tuple[int, Any]:
    async with client.post("/v1/tts", data=form(fields)) as reply:
        return reply.status, await reply.read()


def test_a_form_says_the_same_as_json(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            await add(client, "123", "first", CLIPS[0])
            prosody = '{"speed": 1.0, "volume": 0}'
            fields = {"text": "[1] 5", "format": "wav", "streaming": "false", "seed": "7", "temperature": "0.5"}
            status, body = await send(client, **fields, reference_id="123", prosody=prosody, sample_rate="null")
            assert (status, body[:4]) == (200, b"RIFF")
            submit, prompt = client.engine.submitted[0]
            assert (submit.streaming, submit.sampling.seed, submit.sampling.temperature) == (False, 7, 0.5)
            np.testing.assert_array_equal(prompt, expected([Reference("first", fake_codes(0))], "[1] 5"))

            two = [Reference("<|speaker:0|>x", fake_codes(0)), Reference("<|speaker:1|>y", fake_codes(1))]
            await send(client, text="hello", reference_audio=CLIPS[:2], reference_text=["x", "y"])
            np.testing.assert_array_equal(client.engine.submitted[1][1], expected(two, "hello"))

    run(test)


def test_bad_forms_are_refused_by_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for param, fields in (
                ("text", {"format": "wav"}),
                ("seed", {"text": "x", "seed": "seven"}),
                ("streaming", {"text": "x", "streaming": "maybe"}),
                ("prosody", {"text": "x", "prosody": "[" * 5000}),
                ("reference_text", {"text": "x", "reference_audio": CLIPS[0]}),
                ("reference_text", {"text": "x", "reference_text": "y"}),
                ("references[0].audio", {"text": "x", "reference_audio": b"no", "reference_text": "y"}),
            ):
                status, body = await send(client, **fields)
                assert (status, msgspec.json.decode(body)["error"]["param"]) == (400, param), fields
            headers = {"Content-Type": "multipart/form-data; boundary=x"}
            for broken in (
                b"",
                b"--x",
                b"--x\r\n",
                b"--x\r\nBad\x00Header\r\n\r\n\r\n--x--",
                b"--x\r\n\r\nno name\r\n--x--",
            ):
                async with client.post("/v1/tts", data=broken, headers=headers) as reply:
                    assert reply.status == 400, broken
            async with client.post("/v1/tts", data=b"--x--", headers={"Content-Type": "multipart/form-data"}) as reply:
                assert reply.status == 400

    run(test)


PIECES = [
    *(b"\r\n", b"--x", b"--x--", b"\x00", b"\xff", b"Content-Length: 5\r\n", b"Content-Encoding: gzip\r\n"),
    *(b"Content-Transfer-Encoding: base64\r\n", b"Content-Transfer-Encoding: none\r\n", b"; name*=UTF-8''a"),
    *(b"Content-Type: text/plain; charset=none\r\n", b"Content-Type: multipart/mixed; boundary=y\r\n"),
]


def part(name: str, content: bytes, filename: str = "") -> bytes:
    named = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
    return b"--x\r\nContent-Disposition: " + named.encode() + b"\r\n\r\n" + content + b"\r\n"


def damaged(whole: bytes, random: Random) -> bytes:
    body = bytearray(whole)
    for _ in range(random.randint(1, 6)):
        place = random.randrange(len(body))
        if random.random() < 0.5:
            body[place : place + random.randrange(60)] = b""
        else:
            body[place:place] = random.choice(PIECES)
    return bytes(body)


@pytest.mark.filterwarnings("ignore")
def test_damaged_forms_are_the_client_s_fault(tmp_path: Path) -> None:
    fields = [("text", b"hello"), ("title", b"x"), ("texts", b"said"), ("id", b"x"), ("reference_text", b"said")]
    files = [(name, CLIPS[0][:2000]) for name in ("voices", "audio", "reference_audio")]
    whole = b"".join([part(*field) for field in fields] + [part(*file, "upload") for file in files]) + b"--x--\r\n"
    random = Random(1)

    async def test() -> None:
        async with serving(tmp_path) as client:
            for number in range(200):
                path = ("/v1/tts", "/model", "/v1/references/add", "/v1/references/update")[number % 4]
                headers = {"Content-Type": "multipart/form-data; boundary=x"}
                async with client.post(path, data=damaged(whole, random), headers=headers) as reply:
                    assert reply.status < 500

    run(test)


# The cache by itself --------------------------------------------------------------------------------------------------


class Encoding:
    """Counts what is encoded; each takes until :attr:`go` is set."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.cancelled = 0
        self.go, self.called = asyncio.Event(), asyncio.Event()

    async def __call__(self, audio: bytes) -> Array:
        self.calls.append(audio)
        self.called.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if audio == b"bad":
            raise ValueError("bad")
        return np.zeros((10, 5), np.int16)


def clips(encoding: Encoding, limit: int = 10_000) -> Clips:
    return Clips(encoding, limit, GatewayMetrics(CollectorRegistry()))


def test_the_cache_is_bounded_and_drops_what_was_used_longest_ago() -> None:
    async def test() -> None:
        encoding = Encoding()
        encoding.go.set()
        cache = clips(encoding, limit=300)  # of 100 bytes each
        for audio in (b"a", b"b", b"c", b"a", b"d", b"a", b"b"):
            await cache.codes(audio)
        assert encoding.calls == [b"a", b"b", b"c", b"d", b"b"]
        cache.forget(digest(b"a"))
        cache.forget(digest(b"never seen"))
        await cache.codes(b"a")
        assert encoding.calls[-1] == b"a"

    run(test)


def test_codes_from_the_cache_cannot_be_changed() -> None:
    async def test() -> None:
        encoding = Encoding()
        encoding.go.set()
        cache = clips(encoding)
        for _ in range(2):
            with pytest.raises(ValueError, match="read-only"):
                (await cache.codes(b"a"))[0, 0] = 1

    run(test)


def test_one_who_stops_waiting_takes_nothing_from_the_others_and_the_last_ends_the_work() -> None:
    async def test() -> None:
        encoding = Encoding()
        cache = clips(encoding)
        first, second = (asyncio.create_task(cache.codes(b"a")) for _ in range(2))
        await encoding.called.wait()
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.sleep(0.01)
        encoding.go.set()
        assert (await second).shape == (10, 5)
        assert (len(encoding.calls), encoding.cancelled) == (1, 0)

        encoding.go.clear()
        encoding.called.clear()
        alone = asyncio.create_task(cache.codes(b"b"))
        await encoding.called.wait()
        alone.cancel()
        await eventually(lambda: encoding.cancelled == 1)
        encoding.go.set()
        assert (await cache.codes(b"b")).shape == (10, 5)

    run(test)


def test_a_failure_is_everybody_s_and_is_not_kept() -> None:
    async def test() -> None:
        flights: SingleFlight[str, int] = SingleFlight()
        calls = 0

        async def fail() -> int:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0.01)
            raise ValueError("bad")

        for _ in range(2):
            results = await asyncio.gather(*(flights.run("a", fail) for _ in range(3)), return_exceptions=True)
            assert [str(result) for result in results] == ["bad"] * 3
        assert calls == 2

    run(test)


@pytest.mark.parametrize(("number", "seconds", "words"), [(5, 50.0, 5), (1, 1.5, 1_900), (3, 30.0, 3_000)])
def test_references_that_cannot_fit_are_refused_before_any_is_encoded(
    tmp_path: Path, number: int, seconds: float, words: int
) -> None:
    async def test() -> None:
        async with serving(tmp_path, TINY_MODEL._replace(context=600)) as client:
            clips = [base64.b64encode(encoded(tone(seconds + n / 10))).decode() for n in range(number)]
            references = [{"audio": clip, "text": "said " * (words // number)} for clip in clips]
            reply, body = await post(client, text="hello", references=references)
            error = msgspec.json.decode(body)["error"]
            assert (reply.status, error["code"], error["param"]) == (400, "context_length_exceeded", "references")
            assert not client.engine.encoded

    run(test)


def test_a_voice_that_cannot_fit_is_refused_before_any_recording_is_encoded(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, TINY_MODEL._replace(context=100)) as client:
            status, reply = await add(client, "long", "said", encoded(tone(30.0)))
            assert (status, reply["error"]["code"]) == (400, "context_length_exceeded")
            assert not client.engine.encoded

    run(test)
