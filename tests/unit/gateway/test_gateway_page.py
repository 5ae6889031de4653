"""The web page as the gateway serves it, and the numbers it asks for."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from gateway_fakes import Player, post, run, serving

from gateway.api.page import DIRECTORY, FILES

PAIRS = [  # text and what it stands on
    ("--ink", "--ground"),
    ("--ink", "--surface"),
    ("--soft-ink", "--ground"),
    ("--soft-ink", "--surface"),
    ("--accent", "--surface"),
    ("--on-accent", "--accent"),
    ("--on-accent", "--accent-strong"),
    ("--danger", "--surface"),
]


def test_every_part_is_served_with_its_type_and_a_strict_policy(tmp_path: Path) -> None:
    types = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

    async def test() -> None:
        async with serving(tmp_path) as client:
            for path in sorted(DIRECTORY.iterdir()):
                async with client.get(f"/web/{path.name}") as reply:
                    assert reply.status == 200
                    assert reply.content_type == types[path.suffix]
                    assert await reply.read() == path.read_bytes()
                    policy = reply.headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy
                    assert "unsafe" not in policy
                    assert reply.headers["X-Content-Type-Options"] == "nosniff"
            async with client.get("/") as reply:
                assert await reply.read() == FILES["index.html"].content

    run(test)


def test_a_browser_that_has_a_part_is_not_sent_it_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            async with client.get("/web/page.js") as reply:
                tag = reply.headers["ETag"]
                assert reply.headers["Cache-Control"] == "no-cache"
            async with client.get("/web/page.js", headers={"If-None-Match": f'"other", {tag}'}) as reply:
                assert (reply.status, await reply.read()) == (304, b"")
            async with client.get("/web/page.js", headers={"If-None-Match": '"other"'}) as reply:
                assert reply.status == 200

    run(test)


@pytest.mark.parametrize("name", ["page.py", "..%2fdoors%2fpage.py", "page.js%00", "nothing.js"])
def test_nothing_else_is_served(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client, client.get(f"/web/{name}") as reply:
            assert reply.status == 404

    run(test)


def test_the_page_needs_nothing_from_elsewhere() -> None:
    """It works offline: no address of another host, and each part that is named is there."""
    texts = {name: file.content.decode() for name, file in FILES.items()}
    for name, text in texts.items():
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == [], name
    named = re.findall(r'(?:src|href)="web/([^"]+)"', texts["index.html"])
    named += [part for text in texts.values() for part in re.findall(r'(?:from|URL\() ?"(?:\./)?([\w.]+\.js)"', text)]
    assert set(named) <= set(FILES)
    assert set(FILES) == {*named, "index.html"}


def test_each_element_that_a_script_asks_for_is_in_the_page() -> None:
    page = FILES["index.html"].content.decode()
    scripts = "".join(file.content.decode() for name, file in FILES.items() if name.endswith(".js"))
    asked = set(re.findall(r'(?:part|write|getElementById)\("([\w-]+)"', scripts))
    assert len(asked) > 30
    assert asked <= set(re.findall(r'id="([\w-]+)"', page))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(scheme: str) -> None:
    """WCAG 2, level AA: a contrast of 4.5 to 1."""
    light, dark = re.findall(r":root \{(.*?)\}", FILES["page.css"].content.decode(), re.DOTALL)
    colours = dict(re.findall(r"(--[\w-]+): (#\w{6});", light if scheme == "light" else dark))
    for text, ground in PAIRS:
        assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


def _contrast(one: str, other: str) -> float:
    """Ratio of relative luminances (WCAG 2.2)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_status_tells_who_speaks_and_who_waits(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def plan(player: Player) -> None:
        if not gate.is_set():
            await gate.wait()
        player.give(1)
        await asyncio.sleep(0.5)
        player.end()

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = plan
            requests = [asyncio.create_task(post(client, text="Hello.", format="pcm")) for _ in range(2)]
            await _until(client, {"running": 0, "waiting": 2})
            gate.set()
            await _until(client, {"running": 2, "waiting": 0})
            await asyncio.gather(*requests)
            await _until(client, {"running": 0, "waiting": 0})
            client.engine.reasons = {"ar_worker": "starting"}
            async with client.get("/status") as reply:
                status = await reply.json()
                assert status["ready"] is False
                assert status["sample_rate"] == client.gateway.model.sample_rate

    run(test)


async def _until(client: object, wanted: dict[str, int]) -> None:
    async with asyncio.timeout(5):
        while True:
            async with client.get("/status") as reply:  # type: ignore[attr-defined]
                status = await reply.json()
            if wanted.items() <= status.items():
                return
            await asyncio.sleep(0.01)
