"""The web page in a real browser, before a real process group with cost models for its models."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Iterator

import pytest

from tests.clients import browser as browsers
from tests.clients.browser import Browser, Tab
from tests.integration.group import Group, costs, eventually, running

pytestmark = pytest.mark.slow

SECONDS = 2.0  # of sound, whatever is said: 40 frames at 20 per second
STEP_MS = 15.0  # three times as fast as the sound plays
NO_WORKLET = "delete window.AudioWorkletNode;"
NO_STREAMING = NO_WORKLET + "delete window.MediaSource;"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.running() as running_browser:
        yield running_browser


@pytest.fixture(scope="module")
def group(browser: Browser) -> Iterator[Group]:
    with running(*costs(step_ms=STEP_MS, ar_worker__cost__frames=40)) as running_group:
        yield running_group


async def _ready(tab: Tab) -> None:
    """The page knows the server, and so the model's sample rate; before, it takes what the server gives."""
    await tab.wait_for("document.getElementById('server').dataset.state === 'ready'")


async def _speak(tab: Tab) -> None:
    await tab.run("document.getElementById('text').focus()")
    await tab.press("Enter", 13, control=True)


def _milliseconds(text: str) -> float:
    found = re.search(r"(\d+) ms", text)
    assert found, text
    return float(found[1])


def test_the_page_plays_what_is_typed_without_an_underrun_or_a_word_on_the_console(
    browser: Browser, group: Group
) -> None:
    async def test() -> None:
        async with browser.tab(group.base) as tab:
            await _ready(tab)
            await _speak(tab)
            await tab.wait_for_state("playing")
            assert await tab.run("document.body.dataset.player") == "worklet"
            assert await tab.wait_for_state("done", "failed") == "done"
            assert await tab.text("underruns") == "0"
            assert await tab.text("sound-length") == f"{SECONDS} s"
            assert await tab.text("sound-rate") == "16 kHz"
            assert _milliseconds(await tab.text("playing-after")) < 2000
            assert await tab.text("message") == f"Done: {SECONDS} seconds, no gaps."
            assert tab.complaints == []

    asyncio.run(test())


def test_the_sound_begins_before_all_of_it_is_made(browser: Browser, group: Group) -> None:
    async def test() -> None:
        async with browser.tab(group.base) as tab:
            await _speak(tab)
            await tab.wait_for_state("playing")
            begun = _milliseconds(await tab.text("playing-after"))
            assert await tab.wait_for_state("done", "failed") == "done"
            speed = float((await tab.text("speed"))[:-1])
            assert begun < 1000 * SECONDS / speed

    asyncio.run(test())


def test_sound_that_comes_too_slowly_is_counted_as_an_underrun(browser: Browser, group: Group) -> None:
    slow = {"offline": False, "latency": 0, "uploadThroughput": -1, "downloadThroughput": 20_000}  # sound: 32,000 B/s

    async def test() -> None:
        async with browser.tab(group.base) as tab:
            await _ready(tab)
            await tab.call("Network.enable")
            await tab.call("Network.emulateNetworkConditions", **slow)
            await _speak(tab)
            assert await tab.wait_for_state("done", "failed") == "done"
            assert int(await tab.text("underruns")) > 0
            assert "no gaps" not in await tab.text("message")

    asyncio.run(test())


def test_what_was_heard_can_be_heard_again_and_downloaded_as_a_wav_file(browser: Browser, group: Group) -> None:
    async def test() -> None:
        async with browser.tab(group.base) as tab:
            await _ready(tab)
            await tab.run(
                "window.files = []; const make = URL.createObjectURL; HTMLAnchorElement.prototype.click = () => {};"
                "URL.createObjectURL = (blob) => (files.push(blob), make(blob)); 0"
            )
            await _speak(tab)
            await tab.wait_for_state("done")
            await tab.click("replay")
            await tab.wait_for_state("playing")
            assert await tab.wait_for_state("done", "failed") == "done"
            await tab.click("download")
            assert await tab.run("files[0].size") == 44 + 2 * 16_000 * SECONDS
            assert await tab.run("files[0].slice(0, 4).text()") == "RIFF"

    asyncio.run(test())


def test_escape_stops_the_sound_and_the_request(browser: Browser, group: Group) -> None:
    async def test() -> None:
        async with browser.tab(group.base) as tab:
            await _speak(tab)
            await tab.wait_for_state("playing")
            await tab.press("Escape", 27)
            assert await tab.wait_for_state("stopped", "done") == "stopped"
            assert await tab.run("document.getElementById('stop').disabled")
            assert tab.complaints == []

    cancelled = group.metric("shoal_requests_total", outcome="cancelled")
    asyncio.run(test())
    eventually(lambda: group.metric("shoal_requests_total", outcome="cancelled") == cancelled + 1)
    eventually(group.idle)


@pytest.mark.parametrize("missing", ["", NO_WORKLET])
def test_what_came_before_a_stop_can_be_played_and_downloaded(browser: Browser, group: Group, missing: str) -> None:
    async def test() -> None:
        async with browser.tab(group.base, missing) as tab:
            await _ready(tab)
            await tab.run(
                "window.names = []; HTMLAnchorElement.prototype.click = function () { names.push(this.download) }; 0"
            )
            await _speak(tab)
            await tab.wait_for_state("playing")
            await tab.press("Escape", 27)
            assert await tab.wait_for_state("stopped", "done") == "stopped"
            await tab.click("download")
            assert (await tab.run("names[0]")).startswith("the-tide-comes-in-and-a-thousand-small.")
            await tab.click("replay")
            assert await tab.wait_for_state("done", "failed") == "done"
            assert tab.complaints == []

    asyncio.run(test())


def test_the_request_is_copied_as_a_command(browser: Browser, group: Group) -> None:
    async def test() -> None:
        async with browser.tab(group.base) as tab:
            await _ready(tab)
            await tab.run("document.oncopy = () => { window.copied = document.activeElement.value }; 0")
            await tab.write("text", "It's here.")
            await tab.click("copy-curl")
            await tab.wait_for("window.copied")
            command = shlex.split(await tab.run("window.copied"))
            assert command[:2] == ["curl", f"{group.base}/v1/tts"]
            assert json.loads(command[command.index("-d") + 1]) == {"text": "It's here.", "format": "mp3"}

    asyncio.run(test())


@pytest.mark.parametrize(("missing", "player"), [(NO_WORKLET, "media-source"), (NO_STREAMING, "file")])
def test_a_browser_without_worklets_plays_mp3(browser: Browser, group: Group, missing: str, player: str) -> None:
    async def test() -> None:
        async with browser.tab(group.base, missing) as tab:
            await _speak(tab)
            assert await tab.wait_for_state("done", "failed") == "done"
            assert await tab.run("document.body.dataset.player") == player
            assert await tab.text("underruns") == "0"
            assert (await tab.text("message")).startswith("Done: 2.")
            assert tab.complaints == []

    asyncio.run(test())


def test_a_voice_is_recorded_used_and_deleted(browser: Browser, group: Group) -> None:
    async def test() -> None:
        async with browser.tab(group.base) as tab:
            await tab.click("voice-add")
            await tab.write("voice-name", "beeper")
            await tab.click("record")
            await tab.wait_for("parseFloat(document.getElementById('record-time').value) > 1.5")
            await tab.click("record")
            await tab.click("voice-save")
            await tab.wait_for("document.getElementById('voice').value === 'beeper'")
            await _speak(tab)
            assert await tab.wait_for_state("done", "failed") == "done"
            await tab.click("voice-delete")
            await tab.run("document.querySelector('#delete-dialog [value=delete]').click()")
            await tab.wait_for("document.getElementById('voice').options.length === 3")  # the default, and two bundled
            assert tab.complaints == []

    asyncio.run(test())


def test_an_error_is_told_in_the_server_s_words(browser: Browser, group: Group) -> None:
    async def test() -> None:
        async with browser.tab(group.base) as tab:
            await tab.write("text", "<|im_end|>")
            await _speak(tab)
            await tab.wait_for_state("failed")
            assert "reserved" in await tab.text("message")
            assert not await tab.run("document.getElementById('speak').disabled")

    asyncio.run(test())


def test_every_control_has_a_name(browser: Browser, group: Group) -> None:
    roles = {"button", "textbox", "combobox", "spinbutton", "image", "dialog", "link", "Meter", "StaticText"}

    async def test() -> None:
        async with browser.tab(group.base) as tab:
            await tab.click("voice-add")
            nodes = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
            named = [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]
            assert len(named) > 10
            assert [node for node in named if not node.get("name", {}).get("value")] == []

    asyncio.run(test())


@pytest.mark.parametrize("width", [320, 1280])
def test_nothing_sticks_out_of_the_page(browser: Browser, group: Group, width: int) -> None:
    async def test() -> None:
        async with browser.tab(group.base, width=width, height=800) as tab:
            await _speak(tab)
            await tab.wait_for_state("done")
            assert await tab.run("document.documentElement.scrollWidth") <= width

    asyncio.run(test())


def test_a_server_with_keys_is_asked_with_the_key_that_is_typed(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(address: str) -> None:
        async with browser.tab(address) as tab:
            await tab.wait_for("!document.getElementById('key-form').hidden")
            await _speak(tab)
            await tab.wait_for_state("failed")
            await tab.write("key", "secret")
            await tab.run("document.getElementById('key-form').requestSubmit()")
            await _speak(tab)
            assert await tab.wait_for_state("done", "failed") == "done"

    monkeypatch.setenv("SHOAL_API_KEYS", "anna=secret")
    with running(*costs(step_ms=STEP_MS, ar_worker__cost__frames=40)) as guarded:
        asyncio.run(test(guarded.base))
