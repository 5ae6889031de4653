"""Fields of a request: bad ones are refused by name, good ones become what the engine is told."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

import msgspec
from gateway_fakes import MINI, TINY_MODEL, post, run, serving

from common.config import Gateway as Settings
from common.messages import Failure
from gateway.checkpoint import served_model
from gateway.http.body import without_nulls
from gateway.http.errors import ApiError, from_failure
from gateway.schema.fields import parse

CONTEXT = TINY_MODEL.context
AUDIO = base64.b64encode(b"x").decode()

BAD_FIELDS: list[tuple[str, Any]] = [
    ("text", 5),
    ("text", ""),
    ("text", " \n\t "),
    ("text", "<|speaker:0|>  "),
    ("text", "x" * 201),
    ("text", "a<|im_end|>b"),
    ("text", "<|semantic:5|>"),
    ("text", "<|pad|>"),
    ("text", ["a"]),
    ("format", "ogg"),
    ("format", 1),
    ("streaming", "yes"),
    ("streaming", 1),
    ("seed", 1.5),
    ("seed", "1"),
    ("seed", 2**63),
    ("seed", -(2**63) - 1),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", "0.7"),
    ("temperature", True),
    ("top_p", 0),
    ("top_p", 1.01),
    ("top_k", 0),
    ("top_k", 257),
    ("top_k", 1.5),
    ("max_new_tokens", -1),
    ("max_new_tokens", CONTEXT + 1),
    ("max_new_tokens", 10**30),
    ("chunk_length", 99),
    ("chunk_length", 1001),
    ("repetition_penalty", 0.8),
    ("repetition_penalty", 2.1),
    ("latency", "fast"),
    ("priority", "high"),
    ("normalize", "true"),
    ("use_memory_cache", True),
    ("min_chunk_length", -1),
    ("condition_on_previous_chunks", 0),
    ("early_stop_threshold", 1.5),
    ("sample_rate", 7999),
    ("sample_rate", 48001),
    ("sample_rate", 22051),  # mp3 has no such rate
    ("sample_rate", "44100"),
    ("mp3_bitrate", 96),
    ("opus_bitrate", "auto"),
    ("features", "quality-guard"),
    ("prosody", 1),
    ("prosody.speed", {"speed": 0.49}),
    ("prosody.speed", {"speed": 3}),
    ("prosody.volume", {"volume": 21}),
    ("reference_id", 5),
    ("reference_id", "../x"),
    ("reference_id", "a/b"),
    ("reference_id", "a\n"),
    ("reference_id", "é"),
    ("reference_id", "a" * 256),
    ("reference_id", "nobody"),
    ("references", "x"),
    ("references[0]", [5]),
    ("references[0][0].audio", [[{"audio": AUDIO, "text": "x"}]]),
    ("references[0].audio", [{"text": "x"}]),
    ("references[0].text", [{"audio": AUDIO}]),
    ("references[0].text", [{"audio": AUDIO, "text": None}]),
    ("references[0].text", [{"audio": AUDIO, "text": " "}]),
    ("references[0].text", [{"audio": AUDIO, "text": "<|voice|>"}]),
    ("references[0].audio", [{"audio": "not base64!", "text": "x"}]),
    ("references[0].audio", [{"audio": 5, "text": "x"}]),
    ("references[0].audio", [{"audio": AUDIO, "text": "x"}]),
]


def test_bad_fields_are_refused_by_name_at_both_doors_and_in_both_encodings(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_text_length=200) as client:
            for param, value in BAD_FIELDS:
                field = param.split(".")[0].split("[")[0]
                for path in ("/v1/tts", "/v1/codes"):
                    await check(client, path, param, {"text": "hello"} | {field: value})
            assert client.engine.submitted == []

    async def check(client, path: str, param: str, fields: dict[str, Any]) -> None:
        for kind, encode in (("json", msgspec.json.encode), ("msgpack", msgspec.msgpack.encode)):
            if kind == "msgpack" and any(isinstance(value, int) and abs(value) > 2**63 for value in fields.values()):
                continue  # it has no such integers
            headers = {"Content-Type": f"application/{kind}; charset=utf-8"}
            async with client.post(path, data=encode(fields), headers=headers) as reply:
                body = await reply.json()
                assert (reply.status, body["error"]["param"]) == (400, param), (fields, body)
                assert body["status"] == 400
                assert body["message"] == body["detail"] == body["error"]["message"]
                assert param in body["message"] or "body" in body["message"]
                assert body["error"]["type"] == "invalid_request_error"

    run(test)


BAD_BODIES: list[tuple[str, bytes, int, str]] = [
    ("application/json", b"", 400, "invalid_json"),
    ("application/json", b"{", 400, "invalid_json"),
    ("application/json", b"[]", 400, "invalid_json"),
    ("application/json", b'"text"', 400, "invalid_json"),
    ("application/json", b"null", 400, "invalid_json"),
    ("application/json", b'{"text": NaN}', 400, "invalid_json"),
    ("application/json", b'{"text": "\xff"}', 400, "invalid_json"),
    ("application/json", b'{"text": "\\ud800"}', 400, "invalid_json"),
    ("application/json", b'{"text": 1e999}', 400, "invalid_json"),
    ("application/json", b'{"text": "a"} x', 400, "invalid_json"),
    ("application/json", b'{"a":' * 100_000, 400, "invalid_json"),
    ("application/json", b"{}", 400, "missing_field"),
    ("application/json", b'{"text": null}', 400, "missing_field"),
    ("application/msgpack", b"", 400, "invalid_msgpack"),
    ("application/msgpack", b"\xc1", 400, "invalid_msgpack"),
    ("application/msgpack", b"\x81\xa4text\xa1\xff", 400, "invalid_msgpack"),
    ("application/msgpack", b"\x91" * 100_000, 400, "invalid_msgpack"),
    ("application/msgpack", b"\xdf\xff\xff\xff\xff", 400, "invalid_msgpack"),
    ("application/msgpack", b"\x90", 400, "invalid_msgpack"),
    ("application/msgpack", b"\x81\x01\x02", 400, "missing_field"),
    ("text/plain", b'{"text": "a"}', 415, "unsupported_media_type"),
    ("application/x-www-form-urlencoded", b"text=a", 415, "unsupported_media_type"),
    ("multipart/form-data; boundary=x", b"--x--", 400, "missing_field"),
    ("", b'{"text": "a"}', 415, "unsupported_media_type"),
    ("application/json", b'{"text": "' + b"a" * 600_000 + b'"}', 413, "payload_too_large"),
]


def test_bad_bodies_are_refused_in_the_same_words_everywhere(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_body_bytes=600_000) as client:
            for kind, data, status, code in BAD_BODIES:
                async with client.post("/v1/tts", data=data, headers={"Content-Type": kind}) as reply:
                    body = await reply.json()
                    assert (reply.status, body["error"]["code"]) == (status, code), (kind, data[:20], body)
                    assert body.keys() == {"status", "message", "detail", "error"}
                    assert ("Accept" in reply.headers) == (status == 415)

    run(test)


def test_a_compressed_body_is_read_and_bounded_by_its_true_size(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_body_bytes=100_000) as client:
            bomb = gzip.compress(b'{"text": "' + b"a" * 10_000_000 + b'"}')
            for data, status in ((gzip.compress(b'{"text": "a"}'), 200), (b"no gzip", 400), (bomb, 413)):
                headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
                async with client.post("/v1/tts", data=data, headers=headers) as reply:
                    assert reply.status == status

    run(test)


def test_unknown_routes_and_methods_have_the_same_body(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            async with client.get("/v1/nothing") as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (404, "not_found")
            async with client.get("/v1/tts") as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (405, "method_not_allowed")
                assert reply.headers["Allow"] == "POST"

    run(test)


def submitted(values: dict[str, Any], served: served_model.ServedModel = TINY_MODEL, **settings: Any):
    return parse(without_nulls(values), served, Settings(**settings))


def test_defaults_come_from_the_checkpoint() -> None:
    tiny = submitted({"text": "x"}).sampling
    assert (tiny.temperature, tiny.fast_temperature, tiny.top_p, tiny.top_k) == (0.8, 0.8, 0.8, 30)
    mini = served_model.load(MINI)
    assert mini.defaults.fast_temperature is not None
    sampling = submitted({"text": "x"}, mini).sampling
    assert sampling.temperature == mini.defaults.temperature
    assert sampling.fast_temperature == mini.defaults.fast_temperature


def test_a_temperature_of_the_request_holds_for_both_models() -> None:
    sampling = submitted({"text": "x", "temperature": 0}, served_model.load(MINI)).sampling
    assert (sampling.temperature, sampling.fast_temperature) == (0, 0)


def test_null_means_absent_and_what_real_clients_send_is_accepted() -> None:
    """The fields Fish's SDKs send, all of them."""
    legacy = {
        **{"text": "hello", "chunk_length": 200, "format": "mp3", "sample_rate": None, "mp3_bitrate": 128},
        **{"opus_bitrate": 32, "references": [], "reference_id": None, "normalize": True, "latency": "balanced"},
        **{"prosody": None, "top_p": 0.7, "temperature": 0.7},
    }
    advanced = {
        **{"max_new_tokens": 1024, "repetition_penalty": 1.2, "min_chunk_length": 50},
        **{"condition_on_previous_chunks": True, "early_stop_threshold": 1.0, "features": ["quality-guard"]},
        **{"prosody": {"speed": 1.0, "volume": 0, "normalize_loudness": None}, "use_memory_cache": "off"},
    }
    request = submitted(legacy | advanced)
    assert (request.sampling.top_p, request.max_new_tokens, request.ignored) == (0.7, 1024, [])


def test_seeds_are_kept_or_drawn() -> None:
    assert submitted({"text": "x", "seed": -(2**63)}).sampling.seed == -(2**63)
    drawn = {submitted({"text": "x"}).sampling.seed for _ in range(20)}
    assert len(drawn) == 20
    assert all(0 <= seed < 2**63 for seed in drawn)


def test_unknown_fields_are_named_in_a_header_which_they_cannot_break(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            reply, _ = await post(client, text="x", voice="a", **{"bad\r\nX-Evil: 1": 1})
            assert reply.headers["X-Ignored-Fields"] == "voice"
            assert "X-Evil" not in reply.headers
            reply, _ = await post(client, text="x")
            assert "X-Ignored-Fields" not in reply.headers

    run(test)


def test_a_prompt_that_is_too_long_is_the_text_s_fault() -> None:
    error = from_failure(Failure(400, "context_length_exceeded", "too long"))
    assert isinstance(error, ApiError)
    assert (error.status, error.param) == (400, "text")


def test_a_voice_that_a_client_names_by_itself_is_the_default(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, fish_voices={"theirs": ""}) as client:
            for voice, status in (("theirs", 200), ("other", 400)):
                reply, _ = await post(client, text="a", reference_id=voice)
                assert reply.status == status

    run(test)
