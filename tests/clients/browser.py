"""Chromium without a window, driven through the DevTools protocol."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-quic", "--mute-audio", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
]
START_SECONDS = 60.0
WAIT_SECONDS = 30.0


class Browser:
    """A running Chromium; ``endpoint`` is that of its DevTools."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    @contextlib.asynccontextmanager
    async def tab(self, url: str, before: str = "", **metrics: Any) -> AsyncIterator[Tab]:
        """A tab in a profile of its own, with ``before`` run in it ahead of the page's own scripts."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.endpoint}/json/version") as reply:
            version = await reply.json(content_type=None)
            async with http.ws_connect(version["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                receiver = asyncio.create_task(tab.receive())
                try:
                    await tab.open(url, before, metrics)
                    yield tab
                    await tab.close()
                finally:
                    receiver.cancel()


class Tab:
    """One page. ``complaints``: what it wrote to the console as an error, and exceptions nobody caught."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self._socket = socket
        self._session: str | None = None
        self._context = ""
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def open(self, url: str, before: str, metrics: dict[str, Any]) -> None:
        self._context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = await self.call("Target.createTarget", url="about:blank", browserContextId=self._context)
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            await self.call(f"{domain}.enable")
        if metrics:
            await self.call("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, mobile=True, **metrics)
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        await self.call("Page.navigate", url=url)
        await self.wait_for("document.readyState === 'complete' && document.body.dataset.state === 'idle'")

    async def close(self) -> None:
        self._session = None
        await self.call("Target.disposeBrowserContext", browserContextId=self._context)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._socket.send_json(message | ({"sessionId": self._session} if self._session else {}))
        return await asyncio.wait_for(answer, WAIT_SECONDS)

    async def receive(self) -> None:
        """Answers to whoever waits for them; events are looked through for complaints."""
        async for received in self._socket:
            message = received.json()
            answer = self._answers.pop(message.get("id", 0), None)
            if answer is None:
                self._note(message.get("method", ""), message.get("params", {}))
            elif "error" in message:
                answer.set_exception(AssertionError(message["error"]))
            else:
                answer.set_result(message["result"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        written = method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert")
        logged = method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning")
        if written or logged or method == "Runtime.exceptionThrown":
            self.complaints.append(str(params))

    async def run(self, expression: str) -> Any:
        """The value of an expression, as after a touch of the user."""
        params = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        result = await self.call("Runtime.evaluate", expression=expression, **params)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def text(self, element: str) -> str:
        return str(await self.run(f"document.getElementById('{element}').textContent"))

    async def click(self, element: str) -> None:
        await self.run(f"document.getElementById('{element}').click()")

    async def write(self, element: str, value: str) -> None:
        await self.run(f"document.getElementById('{element}').value = {value!r}")

    async def press(self, key: str, code: int, control: bool = False) -> None:
        """One key, pressed and let go."""
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 2 if control else 0}
        await self.call("Input.dispatchKeyEvent", type="rawKeyDown", **pressed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    async def wait_for(self, condition: str, seconds: float = WAIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not await self.run(condition):
            assert time.monotonic() < deadline, f"not within {seconds} s: {condition}; {self.complaints}"
            await asyncio.sleep(0.05)

    async def wait_for_state(self, *states: str) -> str:
        await self.wait_for(f"{list(states)}.includes(document.body.dataset.state)")
        return str(await self.run("document.body.dataset.state"))


def find() -> str:
    """The path of a Chromium. Where there is none, the test is skipped; in continuous integration it fails."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        message = f"no Chromium is installed (looked for {', '.join(NAMES)})"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


@contextlib.contextmanager
def running() -> Iterator[Browser]:
    """A browser with a profile of its own, ended on the way out."""
    path = find()
    with tempfile.TemporaryDirectory(prefix="shoal-browser-", ignore_cleanup_errors=True) as profile:
        command = [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield Browser(f"http://127.0.0.1:{_port(process, Path(profile) / 'DevToolsActivePort')}")
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def _port(process: subprocess.Popen[bytes], file: Path) -> int:
    deadline = time.monotonic() + START_SECONDS
    while not (file.exists() and file.read_text().count("\n")):
        assert process.poll() is None, "Chromium has ended"
        assert time.monotonic() < deadline, "Chromium did not start"
        time.sleep(0.05)
    return int(file.read_text().split()[0])
