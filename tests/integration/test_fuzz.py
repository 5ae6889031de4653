"""The doors under broken, wrong and hostile input: it is refused, in time, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import aiohttp
import msgspec
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.integration.client import gather, speak
from tests.integration.group import Group, costs, eventually, running

pytestmark = pytest.mark.slow

SECONDS = 10.0  # for the answer to any input
BODY_TIMEOUT = 1.0
GROWTH_BYTES = 48 * 2**20  # of the gateway's memory, beside what the first requests take
EXAMPLES = settings(
    max_examples=150,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
FEWER = settings(EXAMPLES, max_examples=80)
MSGPACK_DOORS = (
    "/v1/tts",
    "/v1/audio/speech",
    "/v1/codes",
    "/v1/vqgan/decode",
    "/v1/vqgan/encode",
    "/v1/references/update",
)
FORM_DOORS = ("/v1/tts", "/v1/references/add", "/v1/audio/voices", "/model")
NAMES = (
    "text", "input", "format", "seed", "reference_id", "references", "prosody", "sample_rate", "voice", "tokens",
    "audios", "chunk_length", "max_new_tokens", "features", "streaming", "stream_format", "temperature",
)  # fmt: skip
VALID: dict[str, Any] = {
    "text": "Hello.", "input": "Hello.", "format": "pcm", "seed": 7, "references": [], "prosody": {"speed": 1.0},
    "chunk_length": 200, "streaming": True, "tokens": [[[1, 2]] * 10], "audios": [b"RIFF"],
}  # fmt: skip
BOUNDARY = "frontier"


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Group]:
    options = costs(
        0.5, 0.5, ar_worker__cost__frames=2, gateway__body_timeout=BODY_TIMEOUT, gateway__max_text_length=1000,
        gateway__max_body_bytes=4 * 2**20, gateway__live_idle_timeout=0.4,
    )  # fmt: skip
    with running(*options) as group:
        yield group


@pytest.fixture(autouse=True)
def nothing_left(fuzzed: Group) -> Iterator[None]:
    """After each test all is as before, and the server serves."""
    gather(*(speak(fuzzed.base, "Warm.") for _ in range(4)))
    gateway = psutil.Process(fuzzed.pid("gateway"))
    eventually(fuzzed.idle)
    memory, files, threads = gateway.memory_info().rss, gateway.num_fds(), gateway.num_threads()
    yield
    (reply,) = gather(speak(fuzzed.base, "Still here."))
    assert reply.status == 200
    assert len(reply.samples) > 0
    eventually(fuzzed.idle)
    eventually(lambda: gateway.num_fds() <= files, 15)
    assert gateway.memory_info().rss - memory < GROWTH_BYTES
    assert gateway.num_threads() <= threads + 64  # pools of threads grow to their bound, and no further
    assert gateway.pid == fuzzed.pid("gateway")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=30)
    | st.binary(max_size=30)
    | st.sampled_from(["Hello.", "mp3", "anna", 0, 1, 8000, 1e300, -1]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
fields = st.dictionaries(st.sampled_from(NAMES), values, max_size=6).map(lambda given: VALID | given)
headers = st.sampled_from(
    [b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff"]
)
"""Maps, lists, binary and strings that say they have billions of entries."""


def nested(depth: int) -> st.SearchStrategy[bytes]:
    """Maps or lists in one another."""
    opening = st.sampled_from([b"\x81\xa4text", b"\x81\xa7prosody", b"\x91", b"\x81\xa6tokens"])
    return st.tuples(opening, st.integers(1, depth)).map(lambda drawn: b"\x81\xa4text" + drawn[0] * drawn[1] + b"\xc0")


@st.composite
def mutated(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """A valid body with some of it cut off, put in or changed."""
    body = bytearray(draw(valid))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(0, len(body) - 1)))
        change = draw(st.sampled_from(["cut", "put", "flip", "drop"]))
        if change == "cut":
            del body[place:]
        elif change == "put":
            body[place:place] = draw(st.binary(min_size=1, max_size=8) | headers)
        elif change == "flip" and body:
            body[place] = draw(st.integers(0, 255))
        else:
            del body[place : place + draw(st.integers(1, 8))]
    return bytes(body)


packed = fields.map(msgspec.msgpack.encode)
messages = st.binary(max_size=200) | packed | mutated(packed) | headers | nested(3000)


@st.composite
def forms(draw: st.DrawFn) -> bytes:
    """Multipart bodies: parts with all sorts of heads, and perhaps no end."""
    names = st.sampled_from(
        [*NAMES, "id", "audio", "voices", "texts", "title", "name", "audio_sample", "ref_text", "reference_audio"]
    )
    heads = st.sampled_from(
        [
            'form-data; name="{}"',
            'form-data; name="{}"; filename="a.wav"',
            "form-data; name={}",
            "attachment",
            "form-data",
            "{}",
        ]
    )
    extra = st.sampled_from(
        ["", "Content-Type: application/octet-stream", "Content-Type: text/plain; charset=nonsense",
         "Content-Transfer-Encoding: base64", "Content-Transfer-Encoding: nonsense", "Content-Encoding: gzip",
         "Content-Type: multipart/mixed; boundary=inner", "Content-Length: -1", "X: " + "y" * 9000]
    )  # fmt: skip
    body = b""
    for _ in range(draw(st.integers(0, 4))):
        head = f"Content-Disposition: {draw(heads).format(draw(names))}\r\n{draw(extra)}".strip()
        content = draw(st.sampled_from([b"Hello.", b"anna", b"[" * 4000, b"\xff\xfe", b"{}"]) | st.binary(max_size=60))
        body += f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + content + b"\r\n"
    return body + draw(st.sampled_from([f"--{BOUNDARY}--\r\n".encode(), b"", b"--"]))


def check(reply: aiohttp.ClientResponse, body: bytes, sent: object) -> None:
    assert reply.status < 500, (sent, reply.status, body[:500])
    if reply.status >= 400:
        assert json.loads(body)["error"]["code"], sent


async def send(group: Group, path: str, body: bytes, content_type: str, method: str = "POST") -> None:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session,
        session.request(method, group.base + path, data=body, headers={"Content-Type": content_type}) as reply,
    ):
        check(reply, await reply.read(), (path, body[:2000]))


@EXAMPLES
@given(path=st.sampled_from(MSGPACK_DOORS), body=messages)
def test_msgpack(fuzzed: Group, path: str, body: bytes) -> None:
    asyncio.run(send(fuzzed, path, body, "application/msgpack"))


@FEWER
@given(
    path=st.sampled_from(MSGPACK_DOORS),
    body=st.binary(max_size=100)
    | mutated(st.just(json.dumps({"text": "Hello.", "prosody": {}, "seed": 1}).encode()))
    | st.integers(1, 3000).map(lambda depth: b'{"text":' * depth + b"1" + b"}" * depth)
    | st.sampled_from(
        [
            b'{"text": "\\ud800"}',
            b'{"seed": 1e999}',
            b"{" + b'"a":1,' * 5000 + b'"text":"x"}',
            b'{"seed":' + b"9" * 5000 + b"}",
        ]
    ),
)
def test_json(fuzzed: Group, path: str, body: bytes) -> None:
    asyncio.run(send(fuzzed, path, body, "application/json"))


@EXAMPLES
@given(
    path=st.sampled_from(FORM_DOORS),
    body=forms() | mutated(forms()),
    boundary=st.sampled_from([BOUNDARY] * 6 + ["", "x" * 200]),
)
def test_multipart(fuzzed: Group, path: str, body: bytes, boundary: str) -> None:
    asyncio.run(send(fuzzed, path, body, f"multipart/form-data; boundary={boundary}"))


class Raw:
    """A connection on which anything can be written."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def exchange(self, *pieces: bytes, end: bool, whole: bool = True) -> bytes:
        """Write, end the writing side if ``end``, and read: until the server closes, or else what comes first."""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                self.writer.write(piece)
                await self.writer.drain()
            if end:
                self.writer.write_eof()
            return await self.reader.read(-1 if whole else 2**16)
        return b""


async def raw(group: Group, use: Callable[[Raw], Awaitable[bytes]]) -> bytes:
    host, _, port = group.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        return await asyncio.wait_for(use(Raw(reader, writer)), SECONDS)
    finally:
        writer.close()


def request(head: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join([head, b"Host: x", *lines, b"", b""])


JSON_POST = b"POST /v1/tts HTTP/1.1"
BROKEN_HTTP = [
    request(b"GET /model/\xff\xfe HTTP/1.1", b"Connection: close"),
    request(b"GET /model/%ff%00%0d%0aX HTTP/1.1", b"Connection: close"),
    request(b"GET /model?title=%ff%fe&tag=\xff HTTP/1.1", b"Connection: close"),
    request(b"GET /v1/models/\xf0\x9f HTTP/1.1", b"Connection: close"),
    request(b"GET /web/..%2f..%2fpyproject.toml HTTP/1.1", b"Connection: close"),
    request(b"GET /v1/models HTTP/1.1", b"Connection: close", b"Authorization: Bearer \xff\xfe"),
    request(JSON_POST, b"Connection: close", b"Idempotency-Key: \xff\xfe", b"Content-Length: 0"),
    request(JSON_POST, b"Connection: close", b"Content-Type: \xff/\xfe", b"Content-Length: 2") + b"{}",
    request(JSON_POST, b"Content-Type: application/json", b"Content-Length: 100") + b'{"text": "Hel',
    request(JSON_POST, b"Content-Type: application/json", b"Content-Length: -1") + b"{}",
    request(JSON_POST, b"Content-Type: application/json", b"Content-Length: 99999999999999999999") + b"{}",
    request(JSON_POST, b"Content-Type: application/json", b"Transfer-Encoding: chunked") + b"ffffffffffffffffff\r\n{}",
    request(JSON_POST, b"Content-Type: application/json", b"Transfer-Encoding: chunked") + b"zz\r\n{}\r\n0\r\n\r\n",
    request(JSON_POST, b"Content-Type: application/json", b"Content-Encoding: gzip", b"Content-Length: 2") + b"{}",
    request(JSON_POST, b"Content-Type: application/json", b"Content-Encoding: br", b"Content-Length: 2") + b"{}",
    request(JSON_POST, b"Content-Type: application/json; charset=nonsense", b"Content-Length: 2") + b"{}",
    request(JSON_POST, b"Content-Type: multipart/form-data", b"Connection: close", b"Content-Length: 2") + b"{}",
    request(b"GET /v1/tts/live HTTP/1.1", b"Connection: Upgrade", b"Upgrade: websocket"),
    request(b"GET /v1/tts/live HTTP/1.1", b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 99"),
    request(b"GET / HTTP/9.9"),
    request(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    request(b"GET /healthz HTTP/1.1", b"X: " + b"y" * 20_000),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN_HTTP)))
@pytest.mark.parametrize("end", [True, False])
def test_broken_http(fuzzed: Group, number: int, end: bool) -> None:
    """A client that has gone away gets no answer; one that waits has it, or is cut off, before long."""

    async def use(connection: Raw) -> bytes:
        return await connection.exchange(BROKEN_HTTP[number], end=end, whole=end)

    answer = asyncio.run(raw(fuzzed, use))
    assert not answer.startswith(b"HTTP/1.1 5"), answer


# WebSocket -----------------------------------------------------------------------------------------------------------


def event(name: str, **values: Any) -> bytes:
    return msgspec.msgpack.encode({"event": name} | values)


starts = fields.map(
    lambda given: event("start", request={key: value for key, value in given.items() if key != "input"})
)
events = (
    starts
    | st.sampled_from(
        [event("start", request={"text": "", "format": "pcm"}), event("start"), event("stop"), event("flush")]
    )
    | st.sampled_from(["Hello. ", "And", "\u200b", "<|im_end|>", "...", "x" * 1500, "😀" * 20]).map(
        lambda text: event("text", text=text)
    )
    | values.map(lambda value: event("text", text=value))
    | values.map(lambda value: event("start", request=value))
    | st.text(max_size=5).map(event)
    | values.map(msgspec.msgpack.encode)
    | messages
)


async def converse(group: Group, sent: list[bytes | str]) -> None:
    """Say all this, as fast as it goes, and listen until the server closes or has nothing more to say."""
    url = f"{group.base}/v1/tts/live"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        with contextlib.suppress(ConnectionError):
            for message in sent:
                await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))
            await socket.send_bytes(event("stop"))
        finished = False
        while not finished:
            message = await socket.receive(SECONDS)
            if message.type is not aiohttp.WSMsgType.BINARY:
                assert socket.close_code in (1000, 1001, 1003, 1006, 1009), (socket.close_code, sent)
                return
            told = msgspec.msgpack.decode(message.data)
            assert told["event"] in ("audio", "error", "finish")
            assert told.get("status", 0) < 500, (told, sent)
            finished = told["event"] == "finish" and told["reason"] == "stop"


@EXAMPLES
@given(sent=st.lists(events | st.text(max_size=5), max_size=6))
def test_events_in_any_order(fuzzed: Group, sent: list[bytes | str]) -> None:
    """A server error is never the answer, and the socket is closed in the end."""
    asyncio.run(converse(fuzzed, sent))


def frame(opcode: int, payload: bytes, length: int | None = None, flags: int = 0x80, masked: bool = True) -> bytes:
    """A WebSocket frame (RFC 6455, section 5.2), perhaps with a wrong length."""
    size = len(payload) if length is None else length
    mask = 0x80 if masked else 0
    if size < 126:
        head = struct.pack(">BB", flags | opcode, mask | size)
    elif size < 2**16:
        head = struct.pack(">BBH", flags | opcode, mask | 126, size)
    else:
        head = struct.pack(">BBQ", flags | opcode, mask | 127, size)
    return head + (b"\0\0\0\0" if masked else b"") + payload


frames = st.builds(
    frame,
    st.integers(0, 15),
    st.binary(max_size=20) | st.sampled_from([event("start", request={"text": "Hello. "}), event("stop")]),
    st.none() | st.sampled_from([0, 1, 125, 126, 65_535, 2**32, 2**63 - 1, 2**64 - 1]),
    st.sampled_from([0x80, 0x80, 0x80, 0, 0xC0, 0xF0]),
    st.sampled_from([True, True, True, False]),
)
UPGRADE = request(
    b"GET /v1/tts/live HTTP/1.1", b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)  # fmt: skip


@FEWER
@given(sent=st.lists(frames | st.binary(max_size=10), max_size=4), data=st.data())
def test_broken_frames(fuzzed: Group, sent: list[bytes], data: DataObject) -> None:
    """Frames that are cut off, too long, of unknown kinds, or of the server's side; then the client goes away."""
    stream = b"".join(sent)
    cut = data.draw(st.integers(0, len(stream)))

    async def use(connection: Raw) -> bytes:
        return await connection.exchange(UPGRADE, stream[:cut], end=True)

    answer = asyncio.run(raw(fuzzed, use))
    assert not answer or answer.startswith(b"HTTP/1.1 101"), answer


def test_a_slow_body_is_not_waited_for(fuzzed: Group) -> None:
    async def use(connection: Raw) -> bytes:
        return await connection.exchange(
            request(JSON_POST, b"Content-Type: application/json", b"Content-Length: 99"), end=False, whole=False
        )

    began = time.monotonic()
    assert asyncio.run(raw(fuzzed, use)).startswith(b"HTTP/1.1 408")
    assert time.monotonic() - began < BODY_TIMEOUT + 3


def test_a_silent_socket_is_not_waited_for(fuzzed: Group) -> None:
    async def use(connection: Raw) -> bytes:
        return await connection.exchange(UPGRADE, frame(2, event("start")), end=False)

    assert b"idle" in asyncio.run(raw(fuzzed, use))
