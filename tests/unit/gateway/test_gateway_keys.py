"""API keys: who comes in, within which limits, what is counted, and how keys change without a restart."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gateway_fakes import HOP, RATE, Client, run, serving
from prometheus_client import CollectorRegistry

from common.config import ConfigError
from gateway.access import api_keys as module
from gateway.access.api_keys import ENVIRONMENT, Keys
from gateway.access.auth import guarded
from gateway.observe.metrics import GatewayMetrics
from gateway.observe.timeline import voice_hash

FILE = """
[[key]]
name = "anna"
key = "secret-a"
concurrency = 1

[[key]]
name = "bert"
sha256 = "{digest}"
requests_per_minute = 2
"""


def write(path: Path, text: str = FILE) -> str:
    path.write_text(text.replace("{digest}", hashlib.sha256(b"secret-b").hexdigest()))
    return str(path)


async def ask(client: Client, key: str | None, method: str = "POST", path: str = "/v1/tts") -> tuple[int, Any, Any]:
    headers = {} if key is None else {"Authorization": key}
    body = {"text": "hello", "format": "wav"} if method == "POST" else None
    async with client.http.request(method, path, json=body, headers=headers) as reply:
        error = await reply.json() if reply.status >= 400 else await reply.read()
        return reply.status, error, reply.headers


def test_without_keys_whatever_clients_send_is_accepted(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for key in (None, "", "Bearer ", "Bearer undefined", "undefined", "Bearer anything", "Basic eDp5"):
                assert (await ask(client, key))[0] == 200
            assert {submit.client for submit, _ in client.engine.submitted} == {"127.0.0.1"}
            assert (await ask(client, None, "GET", "/v1/usage"))[0] == 404

    run(test)


def test_with_keys_only_they_come_in(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, api_keys_file=write(tmp_path / "keys.toml")) as client:
            for key in ("Bearer secret-a", "bearer secret-a", "Bearer  secret-b "):
                assert (await ask(client, key))[0] == 200
            assert [submit.client for submit, _ in client.engine.submitted] == ["anna", "anna", "bert"]
            digest = hashlib.sha256(b"secret-b").hexdigest()
            for key in (
                None,
                "",
                "Bearer ",
                "Bearer undefined",
                "Bearer secret",
                "secret-a",
                f"Bearer {digest}",
                "Bearer é",
            ):
                status, body, headers = await ask(client, key)
                assert (status, body["error"]["code"], body["error"]["type"]) == (
                    *(401, "invalid_api_key"),
                    "authentication_error",
                )
                assert headers["WWW-Authenticate"] == "Bearer"
            assert (await ask(client, None, path="/v1/tts?api_key=secret-a"))[0] == 401
            for path in ("/model", "/model/x", "/wallet/self/api-credit", "/v1/references/list", "/v1/usage"):
                assert (await ask(client, None, "GET", path))[0] == 401
                assert (await ask(client, "Bearer secret-a", "GET", path))[0] in (200, 404)
            for path in ("/v1/health", "/health", "/livez", "/readyz", "/version"):
                assert (await ask(client, None, "GET", path))[0] == 200
            assert len(client.engine.submitted) == 3

    run(test)


@pytest.mark.parametrize("open_listings", [True, False])
def test_models_and_voices_are_listed_without_a_key_by_option(tmp_path: Path, open_listings: bool) -> None:
    async def test() -> None:
        keys = write(tmp_path / "keys.toml")
        async with serving(tmp_path, api_keys_file=keys, open_listings=open_listings) as client:
            for path in ("/v1/models", "/v1/audio/voices", "/v1/audio/models", "/compat/v1/models"):
                assert (await ask(client, None, "GET", path))[0] == (200 if open_listings else 401)
            for path in ("/v1/audio/voices", "/v1/audio/speech"):
                assert (await ask(client, None, "POST", path))[0] == 401

    run(test)


def test_a_websocket_may_carry_its_key_in_the_query(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, api_keys_file=write(tmp_path / "keys.toml")) as client:
            upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
            for query, refused in (("?api_key=secret-a", False), ("?api_key=wrong", True), ("", True)):
                async with client.get(f"/v1/usage{query}", headers=upgrade) as reply:
                    assert (reply.status == 401) == refused

    run(test)


@pytest.mark.parametrize(
    ("route", "wanted"),
    [
        ("/v1/tts", True),
        ("/compat/v1/audio/speech", True),
        ("/model", True),
        ("/v1/health", False),
        ("/compat/v1/test", False),
        ("/", False),
        ("/metrics", False),
        ("unmatched", False),
    ],
)
def test_what_is_guarded(route: str, wanted: bool) -> None:
    assert guarded(route) == wanted


def test_a_key_has_so_many_requests_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, api_keys_file=write(tmp_path / "keys.toml")) as client:
            begun, gate = asyncio.Event(), asyncio.Event()

            async def plan(player) -> None:
                begun.set()
                await gate.wait()
                player.give(2)
                player.end()

            client.engine.plan = plan
            first = asyncio.create_task(ask(client, "Bearer secret-a"))
            await begun.wait()
            status, body, headers = await ask(client, "Bearer secret-a")
            assert (status, body["error"]["code"], body["error"]["type"]) == (
                *(429, "concurrency_limit_exceeded"),
                "rate_limit_error",
            )
            assert int(headers["Retry-After"]) >= 1
            assert (await ask(client, "Bearer secret-a", "GET", "/v1/usage"))[0] == 200
            gate.set()
            assert (await ask(client, "Bearer secret-b"))[0] == 200
            assert (await first)[0] == 200
            assert (await ask(client, "Bearer secret-a"))[0] == 200

    run(test)


def test_a_key_has_so_many_requests_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        now = 1000.0
        monkeypatch.setattr("gateway.access.accounts.time", SimpleNamespace(monotonic=lambda: now))
        async with serving(tmp_path, api_keys_file=write(tmp_path / "keys.toml")) as client:
            assert [(await ask(client, "Bearer secret-b"))[0] for _ in range(3)] == [200, 200, 429]
            status, body, headers = await ask(client, "Bearer secret-b")
            assert (status, body["error"]["code"], headers["Retry-After"]) == (429, "rate_limit_exceeded", "30")
            now += 30
            assert [(await ask(client, "Bearer secret-b"))[0] for _ in range(2)] == [200, 429]
            now += 10_000
            assert [(await ask(client, "Bearer secret-b"))[0] for _ in range(3)] == [200, 200, 429]

    run(test)


def test_usage_is_counted_by_key(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, api_keys_file=write(tmp_path / "keys.toml")) as client:
            for _ in range(2):
                await ask(client, "Bearer secret-a")
            assert (await ask(client, "Bearer secret-b"))[0] == 200
            async with client.get("/v1/usage", headers={"Authorization": "Bearer secret-a"}) as reply:
                usage = await reply.json()
            assert (usage["key"], usage["requests"], usage["characters"]) == ("anna", 2, 10)
            assert usage["audio_seconds"] == pytest.approx(2 * 3 * HOP / RATE)
            labels = {"key": "anna"}
            assert client.registry.get_sample_value("shoal_key_characters_total", labels) == 10
            assert client.registry.get_sample_value("shoal_key_requests_total", labels) == 2
            sound = client.registry.get_sample_value("shoal_key_audio_seconds_total", labels)
            assert sound == pytest.approx(2 * 3 * HOP / RATE)

    run(test)


def test_keys_change_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(module, "CHECK_SECONDS", 0.0)
        file = tmp_path / "keys.toml"
        async with serving(tmp_path, api_keys_file=write(file)) as client:
            assert (await ask(client, "Bearer secret-a"))[0] == 200
            write(file, '[[key]]\nname = "anna"\nkey = "new"\n')
            assert [(await ask(client, f"Bearer {key}"))[0] for key in ("secret-a", "secret-b", "new")] == [
                401,
                401,
                200,
            ]
            async with client.get("/v1/usage", headers={"Authorization": "Bearer new"}) as reply:
                assert (await reply.json())["characters"] == 10

            for broken in ("[[key]", '[[key]]\nname = "x"\n'):
                write(file, broken)
                assert (await ask(client, "Bearer new"))[0] == 200
            os.unlink(file)
            assert (await ask(client, "Bearer new"))[0] == 200
            write(file, "")
            assert (await ask(client, "Bearer new"))[0] == 401

    run(test)


def test_keys_come_from_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setenv(ENVIRONMENT, "carl=secret-c, dora=secret=d")
        async with serving(tmp_path, api_keys_file=write(tmp_path / "keys.toml")) as client:
            for key in ("secret-a", "secret-c", "secret=d"):
                assert (await ask(client, f"Bearer {key}"))[0] == 200
            assert [submit.client for submit, _ in client.engine.submitted] == ["anna", "carl", "dora"]

    run(test)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[[key]", "keys.toml"),
        ('[[key]]\nname = "a"\n', "needs either"),
        ('[[key]]\nname = "a"\nkey = "x"\nsha256 = "' + "0" * 64 + '"\n', "needs either"),
        ('[[key]]\nname = "a b"\nkey = "x"\n', "name"),
        ('[[key]]\nname = "a"\nkey = ""\n', "key"),
        ('[[key]]\nname = "a"\nsha256 = "abc"\n', "sha256"),
        ('[[key]]\nname = "a"\nkey = "x"\nrate = 5\n', "rate"),
        ('[[key]]\nname = "a"\nkey = "x"\n[[key]]\nname = "a"\nkey = "y"\n', "same name"),
        ("[keys]\n", "keys"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_the_start(tmp_path: Path, text: str, match: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=match):
        Keys(file, "", GatewayMetrics(CollectorRegistry()))


@pytest.mark.parametrize("value", ["secret", "a b=c", "a="])
def test_an_environment_that_cannot_be_used_is_refused_without_telling_its_secrets(value: str) -> None:
    with pytest.raises(ConfigError, match=ENVIRONMENT) as caught:
        Keys(None, value, GatewayMetrics(CollectorRegistry()))
    assert "secret" not in str(caught.value)


def test_a_missing_file_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml"):
        Keys(tmp_path / "no.toml", "", GatewayMetrics(CollectorRegistry()))


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o660, True), (0o604, True)]
)
def test_a_keys_file_that_others_may_read_or_change_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    file = Path(write(tmp_path / "keys.toml"))
    file.chmod(mode)
    Keys(file, "", GatewayMetrics(CollectorRegistry()))
    assert ("chmod 600" in caplog.text) == warned


def test_voices_in_timelines_can_not_be_guessed_by_their_hash() -> None:
    assert voice_hash(["anna"]) == voice_hash(["anna"]) != voice_hash(["bert"])
    assert len(voice_hash(["anna"])) == 12
    assert voice_hash(["anna"]) != hashlib.sha256(b"anna").hexdigest()[:12]
    assert voice_hash(["anna"]) != hashlib.blake2b(b"anna", digest_size=6).hexdigest()
    assert voice_hash([]) == ""


@pytest.mark.parametrize(
    ("expires", "until"),
    [
        ("2027-01-31", 1801353600),
        ("2027-01-31T12:00:00Z", 1801396800),
        ("2027-01-31T12:00:00", 1801396800),
        ("2027-01-31T12:00:00+02:00", 1801389600),
    ],
)
def test_a_key_works_until_it_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expires: str, until: int
) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[[key]]\nname = "anna"\nkey = "a"\nexpires = {expires}\n\n[[key]]\nname = "bert"\nkey = "b"\n')
    keys = Keys(file, "", GatewayMetrics(CollectorRegistry()))
    for now, works in ((until - 1, True), (until, False), (until + 10**6, False)):
        monkeypatch.setattr(module.time, "time", lambda now=now: now)
        assert (keys.find("a") is not None) == works
        assert keys.find("b") is not None


@pytest.mark.parametrize("expires", ["12", "07:30:00", "true", '"soon"'])
def test_an_expiry_that_is_no_date_is_an_error_at_the_start(tmp_path: Path, expires: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[[key]]\nname = "anna"\nkey = "a"\nexpires = {expires}\n')
    with pytest.raises(ConfigError, match="expires"):
        Keys(file, "", GatewayMetrics(CollectorRegistry()))
