"""Mutated requests at volume: no 5xx, no hang, no restart, no growth, and a listener who notices nothing.

``SHOAL_FUZZ_INPUTS`` sets the number of inputs (4,000; 200,000 for a long run).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter

import msgspec
import psutil
import pytest

from tests.integration.client import codes, gather
from tests.integration.group import Group, costs, eventually, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

INPUTS = int(os.environ.get("SHOAL_FUZZ_INPUTS", "4000"))
AT_A_TIME = 16
SECONDS = 20.0  # for the answer to any input
GROWTH_BYTES = 64 * 2**20
ALLOWED_5XX = {501, 503}  # not implemented, and no room at the moment
FIELDS = {
    "text": "Hello there.",
    "format": "pcm",
    "max_new_tokens": 3,
    "seed": 5,
    "temperature": 0.7,
    "chunk_length": 200,
}
HOSTILE = [
    None,
    True,
    -1,
    2**63,
    1e308,
    "",
    "\x00",
    "a" * 100,
    [],
    {},
    [[]],
    {"a": {}},
    "<|im_end|>",
    "é" * 50,
    "../x",
]
PIECES = [
    b"\x00",
    b"\r\n",
    b"\r\n\r\n",
    b"\xff" * 9,
    b"--x",
    b"{",
    b"]",
    b"%00",
    b": ",
    b"0\r\n\r\n",
    b"9" * 30,
    b"\x81" * 5,
]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Cut, repeat, overwrite or insert at random places."""
    content = bytearray(data)
    for _ in range(chance.randint(0, 4)):
        place = chance.randint(0, len(content))
        match chance.randint(0, 4):
            case 0:
                del content[place : place + chance.randint(1, 20)]
            case 1:
                content[place:place] = chance.choice(PIECES)
            case 2:
                content[place:place] = content[place : place + chance.randint(1, 40)]
            case 3 if place < len(content):
                content[place] = chance.randrange(256)
            case _:
                content = content[:place] if chance.random() < 0.2 else content
    return bytes(content)


def fields(chance: random.Random) -> dict[str, object]:
    values: dict[str, object] = dict(FIELDS)
    for _ in range(chance.randint(0, 3)):
        values[chance.choice([*FIELDS, "references", "reference_id", "prosody", "stream"])] = chance.choice(HOSTILE)
    return values


def body(chance: random.Random) -> tuple[str, bytes]:
    """Content type and body."""
    kind = chance.choice(["application/json", "application/msgpack", "multipart/form-data; boundary=x"])
    if "json" in kind:
        return kind, json.dumps(fields(chance)).encode()
    if "msgpack" in kind:
        return kind, msgspec.msgpack.encode({name: value for name, value in fields(chance).items() if value != 2**63})
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields(chance).items()
    ]
    return kind, "".join([*parts, "--x--\r\n"]).encode()


def message(chance: random.Random) -> bytes:
    """A whole HTTP/1.1 request, perhaps malformed."""
    path = chance.choice(
        [
            "/v1/tts",
            "/v1/audio/speech",
            "/v1/text-to-speech/ada",
            "/v1/codes",
            "/model",
            "/v1/references/add",
            "/v1/vqgan/encode",
        ]
    )
    method = chance.choice(["POST"] * 20 + ["GET", "PATCH", "DELETE"])
    kind, content = body(chance)
    content = mutated(content, chance) if chance.random() < 0.6 else content
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {kind}\r\n"
    head += f"Content-Length: {len(content)}\r\n\r\n"
    start = head.encode()
    return (mutated(start, chance) if chance.random() < 0.3 else start) + content


async def status(address: str, data: bytes) -> int:
    """Status of the answer; 0: the connection ended without one."""
    reader, writer = await asyncio.open_connection(*address.split(":"))
    try:
        writer.write(data)
        writer.write_eof()
        line = await reader.readline()
        while line.startswith(b"HTTP/1.1 102"):  # interim
            await reader.readline()
            line = await reader.readline()
        while await reader.read(65536):
            pass
        return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0
    except ConnectionError:
        return 0
    finally:
        writer.close()


async def attack(address: str, numbers: list[int], seen: Counter[int]) -> None:
    for number in numbers:
        data = message(random.Random(number))
        try:
            answer = await asyncio.wait_for(status(address, data), SECONDS)
        except TimeoutError:
            raise AssertionError(f"input {number} has no answer: {data[:300]!r}") from None
        assert answer < 500 or answer in ALLOWED_5XX, (number, answer, data[:300])
        seen[answer] += 1


def gateway(group: Group) -> psutil.Process:
    return next(one for one in group.tree() if "gateway" in one.cmdline())


def test_mutated_requests_are_answered_and_disturb_nobody() -> None:
    with running(*costs(step_ms=2.0)) as group:
        process = gateway(group)
        witness = {"seed": 77, "max_new_tokens": 300}
        (before,) = gather(codes(group.base, "The witness.", **witness))
        warm: Counter[int] = Counter()
        gather(attack(group.address, list(range(10**6, 10**6 + 300)), warm))
        memory, seen = process.memory_info().rss, Counter[int]()
        lanes = [list(range(lane, INPUTS, AT_A_TIME)) for lane in range(AT_A_TIME)]
        during, *_ = gather(
            codes(group.base, "The witness.", **witness), *(attack(group.address, lane, seen) for lane in lanes)
        )
        assert (during.codes == before.codes).all()
        assert sum(seen.values()) == INPUTS
        assert seen[200] > INPUTS / 50, f"some are good: {seen}"
        assert seen[400] > INPUTS / 10, f"many are refused: {seen}"
        assert process.is_running(), "no restart"
        assert gateway(group).pid == process.pid
        assert process.memory_info().rss - memory < GROWTH_BYTES
        eventually(group.idle, 20)
