"""A reply of any length is one stream, however many engine requests speak it; and an open request takes what it can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gateway_fakes import (
    HOP,
    MINI_MODEL,
    TINY_MODEL,
    FakeEngine,
    Player,
    eventually,
    fail,
    post,
    run,
    serving,
    speak,
    tone,
)

from common.config import Config, Scheduler
from common.messages import Failure, Sampling
from gateway.audio import to_int16
from gateway.checkpoint import served_model
from gateway.engine.streams import Chunk, End, Pause
from gateway.speech import conversation as module
from gateway.speech.conversation import Conversation
from gateway.speech.planner import Reply, engine_bounds

SENTENCES = [f"This is the sentence with the number {word} in it." for word in ("one", "two", "three", "four", "five")]
TEXT = " ".join(SENTENCES)
LONG = "It was the best of times, it was the worst of times. " * 60
BUSY = Failure(429, "queue_full", "many wait", retry_after=2)


def talk(
    engine: FakeEngine, served: served_model.ServedModel = TINY_MODEL, config: Config | None = None, **reply: Any
) -> Conversation:
    values: dict[str, Any] = {"max_new_tokens": 0, "references": [], "output": "audio", "streaming": True} | reply
    request = Reply(request="r", client="c", sampling=Sampling(0.8, 0.8, 0.8, 30, 2**63 - 1), **values)
    return Conversation(engine, served.prompts, request, engine_bounds(config or Config(), served))  # type: ignore[arg-type]


async def read(conversation: Conversation) -> tuple[list[Chunk], End]:
    chunks: list[Chunk] = []
    while not isinstance(item := await conversation.next(), End):
        if isinstance(item, Chunk):
            chunks.append(item)
            conversation.read_up_to(item.first + item.frames)
    return chunks, item


def test_a_model_of_single_turns_speaks_a_long_text_by_one_request_after_another(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            client.engine.plan = speak(2, 3)
            reply, body = await post(client, text=TEXT, format="pcm", sample_rate=16000, seed=5)
            assert reply.status == 200
            submitted = [submit for submit, _ in client.engine.submitted]
            assert [submit.sampling.seed for submit in submitted] == [5, 6, 7]
            assert len({submit.request for submit in submitted}) == 3
            assert all(len(submit.turns) == 1 and not submit.open for submit in submitted)
            assert [submit.deadline is None for submit in submitted] == [False, True, True]
            rate, hop = MINI_MODEL.sample_rate, MINI_MODEL.hop
            assert (rate, len(body)) == (16000, 2 * 3 * 5 * HOP)  # the fake engine's frames are those of the tiny model
            assert hop
            assert body == to_int16(tone(5)).tobytes() * 3
            assert client.engine.in_flight == 0

    run(test)


def test_frames_of_a_long_text_count_on(tmp_path: Path) -> None:
    async def test() -> None:
        engine = FakeEngine()
        engine.plan = speak(2, 3)
        talking = talk(engine, MINI_MODEL)
        talking.say(SENTENCES)
        talking.finish()
        chunks, end = await read(talking)
        assert [chunk.first for chunk in chunks] == [0, 2, 5, 7, 10, 12, 15, 17, 20, 22]
        assert end == End("stop", 25, None)
        assert (talking.received, engine.credit) == (25, [2, 5] * 5)
        assert engine.closed == [None] * 5

    run(test)


def test_the_next_request_is_submitted_when_the_one_before_is_generated_and_no_earlier(tmp_path: Path) -> None:
    async def test() -> None:
        engine = FakeEngine()
        players: list[Player] = []

        async def plan(player: Player) -> None:
            players.append(player)

        engine.plan = plan
        talking = talk(engine, MINI_MODEL)
        talking.say(SENTENCES[:3])
        talking.finish()
        await talking.advance()
        await asyncio.sleep(0)
        players[0].give(2)
        first = await talking.next()
        assert (isinstance(first, Chunk), len(engine.submitted)) == (True, 1)
        waiting = asyncio.create_task(talking.next())
        await asyncio.sleep(0.05)
        players[0].frames = 4
        players[0].end()  # two frames of sound are still on their way
        await eventually(lambda: len(engine.submitted) == 2 and len(players) == 2)
        players[1].give(1)
        players[1].end()
        await asyncio.sleep(0.05)
        assert len(engine.submitted) == 2  # two at a time
        players[0].frames = 2
        players[0].give(2)
        assert (await waiting)[:2] == (2, 2)
        assert (await talking.next())[:2] == (4, 1)
        talking.close()
        assert engine.closed.count("cancelled") == len(engine.submitted) - 1

    run(test)


def test_turns_share_a_request_while_the_worst_case_of_all_fits(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            reply, _ = await post(client, text=LONG[:1500], format="pcm")
            assert reply.status == 200
            submitted = client.engine.submitted
            assert len(submitted[0][0].turns) > 1
            for submit, prompt in submitted:
                assert prompt.shape[1] + submit.max_frames < TINY_MODEL.context
                assert sum(submit.turns) == prompt.shape[1]
            first = TINY_MODEL.prompts.build(["x"], [])[0][:, :4]
            assert all(np.array_equal(prompt[:, :4], first) for _, prompt in submitted)

    run(test)


def test_the_most_frames_go_with_the_text(tmp_path: Path) -> None:
    """Seconds per byte with a floor, the context, and ``max_new_tokens``."""

    async def test() -> None:
        async with serving(tmp_path, seconds_per_byte_cap=0.25, turn_bytes=2000) as client:
            rate = TINY_MODEL.frame_rate
            for text, asked, most in (
                ("x", 0, -int(-30 * rate // 1)),
                ("é" * 100, 0, -int(-50 * rate // 1)),
                ("x", 7, 7),
                ("x" * 300, 7, 7),
                ("x" * 301, 7, 14),  # counted for each 300 bytes begun
                ("x", TINY_MODEL.context, -int(-30 * rate // 1)),
            ):
                await post(client, text=text, max_new_tokens=asked)
                assert client.engine.submitted[-1][0].max_frames == most

    run(test)


def test_max_new_tokens_bound_all_requests_of_a_reply_together() -> None:
    async def test() -> None:
        engine = FakeEngine()

        async def endless(player: Player) -> None:
            player.give(min(40, engine.submitted[-1][0].max_frames))
            player.end("length")

        engine.plan = endless
        talking = talk(engine, MINI_MODEL, max_new_tokens=50)  # 250 bytes
        talking.say(SENTENCES)
        talking.finish()
        _, end = await read(talking)
        assert end == End("length", 50, None)
        assert [submit.max_frames for submit, _ in engine.submitted] == [50, 10]

    run(test)


def test_a_later_request_that_is_refused_is_submitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOLD_SECONDS", 0.02)

    async def test() -> None:
        engine = FakeEngine()
        refusals = iter([False, True, True, False, False])

        async def plan(player: Player) -> None:
            if next(refusals):
                player.end("rejected", BUSY)
            else:
                await speak(3)(player)

        engine.plan = plan
        talking = talk(engine, MINI_MODEL)
        talking.say(SENTENCES[:3])
        talking.finish()
        assert (await read(talking))[1] == End("stop", 9, None)
        seeds = [submit.sampling.seed for submit, _ in engine.submitted]
        assert seeds == [2**63 - 1, -(2**63), -(2**63), -(2**63), -(2**63) + 1]

    run(test)


def test_a_hold_that_ends_while_the_reader_is_about_to_wait_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOLD_SECONDS", 0.025)

    async def test() -> None:
        engine = FakeEngine()
        plans = iter([speak(3), refuse, speak(3)])
        engine.plan = lambda player: next(plans)(player)
        talking = talk(engine, MINI_MODEL)
        talking._loop = SteppingClock()  # type: ignore[assignment]
        talking.say(SENTENCES[:2])
        talking.finish()
        assert (await read(talking))[1] == End("stop", 6, None)

    run(test)


async def refuse(player: Player) -> None:
    player.end("rejected", BUSY)


class SteppingClock:
    """The time of the running loop, 10 ms later at each look."""

    def __init__(self) -> None:
        self._looks = 0

    def time(self) -> float:
        self._looks += 1
        return asyncio.get_running_loop().time() + 0.01 * self._looks


def test_a_first_request_that_is_refused_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            client.engine.plan = fail(0, BUSY, "rejected")
            reply, _ = await post(client, text=TEXT)
            assert (reply.status, len(client.engine.submitted)) == (429, 1)

    run(test)


def test_a_later_request_that_fails_ends_the_reply() -> None:
    async def test() -> None:
        engine = FakeEngine()
        plans = iter([speak(3), fail(1, Failure(503, "worker_lost", "lost"))])
        engine.plan = lambda player: next(plans)(player)
        talking = talk(engine, MINI_MODEL)
        talking.say(SENTENCES)
        talking.finish()
        _, end = await read(talking)
        talking.close("error")
        assert (end.reason, end.frames, end.failure is not None) == ("error", 4, True)
        assert engine.in_flight == 0

    run(test)


# Open requests -------------------------------------------------------------------------------------------------------


def held(count: list[Player]) -> Callable[[Player], Coroutine[Any, Any, None]]:
    async def plan(player: Player) -> None:
        count.append(player)

    return plan


async def settle(conversation: Conversation) -> asyncio.Task[Any]:
    task = asyncio.create_task(conversation.next())
    await asyncio.sleep(0.03)
    return task


def test_while_text_is_written_a_request_is_kept_open_and_extended() -> None:
    async def test() -> None:
        engine, players = FakeEngine(), []
        engine.plan = held(players)
        talking = talk(engine)
        task = await settle(talking)
        assert engine.submitted == []
        talking.say(["One."])
        await eventually(lambda: engine.submitted)
        submit, prompt = engine.submitted[0]
        assert submit.open
        assert submit.room > 100
        assert prompt.shape[1] + submit.room + submit.max_frames <= TINY_MODEL.context
        talking.say(["Two.", "Three."])
        await eventually(lambda: engine.extended)
        request, prompts, last = engine.extended[0]
        assert (request, last) == (submit.request, False)
        expected = TINY_MODEL.prompts.build(["One.", "Two.", "Three."], [])
        assert all(np.array_equal(*pair) for pair in zip([prompt, *prompts], expected, strict=True))
        talking.finish()
        await eventually(lambda: len(engine.extended) == 2)
        assert engine.extended[1][1:] == ([], True)
        players[0].give(3)
        assert (await task).frames == 3
        players[0].end()
        assert await talking.next() == End("stop", 3, None)
        assert len(engine.submitted) == 1

    run(test)


def test_an_open_request_that_rests_long_or_has_no_room_is_ended_and_another_goes_on() -> None:
    async def test() -> None:
        engine, players = FakeEngine(), []
        engine.plan = held(players)
        talking = talk(engine, config=Config(scheduler=Scheduler(open_seconds=0.3)))
        task = await settle(talking)
        talking.say(["One."])
        await eventually(lambda: engine.extended == [("r", [], True)])  # 0.18 s after it was asked
        players[0].give(1)
        players[0].end()
        await task
        assert isinstance(await talking.next(), Pause)
        engine.plan = speak(1)
        talking.say(["Two. " * 50] * 9)  # more than an open request has room for
        talking.finish()
        chunks, end = await read(talking)
        turns = sum(len(submit.turns) for submit, _ in engine.submitted[1:])
        turns += sum(len(prompts) for _, prompts, _ in engine.extended)
        assert turns == 9
        assert len(engine.submitted) > 2
        assert end == End("stop", 1 + len(chunks), None)

    run(test)


def test_an_open_request_without_room_is_ended_and_another_goes_on() -> None:
    async def test() -> None:
        engine, players = FakeEngine(), []
        engine.plan = held(players)
        talking = talk(engine)
        task = await settle(talking)
        talking.say(["One."])
        await eventually(lambda: players)
        talking.say(["Two. " * 50] * 9)
        await eventually(lambda: engine.extended)
        assert len(engine.extended) == 1
        _, prompts, last = engine.extended[0]
        assert (0 < len(prompts) < 9, last) == (True, True)
        assert sum(prompt.shape[1] for prompt in prompts) <= engine.submitted[0][0].room
        engine.plan = speak(1)
        players[0].end()
        await task
        assert engine.submitted[1][1].shape[1] == sum(engine.submitted[1][0].turns)
        talking.close()

    run(test)


def test_the_reader_hears_that_all_is_spoken_while_the_request_stays_open() -> None:
    async def test() -> None:
        engine, players = FakeEngine(), []
        engine.plan = held(players)
        talking = talk(engine)
        talking.say(["One."])
        task = await settle(talking)
        await eventually(lambda: players)
        players[0].give(2)
        assert (await task).frames == 2
        players[0].rest()
        assert isinstance(await talking.next(), Pause)
        assert talking.at_rest
        talking.say(["Two."])
        assert not talking.at_rest
        task = await settle(talking)
        players[0].rest()  # of before, and late
        await asyncio.sleep(0.03)
        assert not task.done()
        players[0].give(3)
        assert (await task)[:2] == (2, 3)
        players[0].rest(extended=1)
        assert isinstance(await talking.next(), Pause)
        assert (len(engine.submitted), len(engine.extended)) == (1, 1)
        talking.close()
        assert engine.closed == ["cancelled"]

    run(test)


# What can be said ----------------------------------------------------------------------------------------------------

UNSPEAKABLE = ["...", "!?", "🙂", "👨‍👩‍👧‍👦", "🇫🇷", "\u200b", "\u200f", "-----", "| | |\n|--|--|", "<|speaker:1|> …"]


@pytest.mark.parametrize("text", UNSPEAKABLE)
def test_a_text_without_anything_to_say_is_refused(tmp_path: Path, text: str) -> None:
    async def test() -> None:
        for served in (TINY_MODEL, MINI_MODEL):
            async with serving(tmp_path, served) as client:
                reply, body = await post(client, text=text)
                assert (reply.status, b"text" in body, client.engine.submitted) == (400, True, [])

    run(test)


@pytest.mark.parametrize(
    "text",
    ["Hi", "OK.", "a", "km/h and/or a\\b <b> %2F 'x' \"y\"", "café “naïve” ½ \uff1c\uff5cim_end\uff5c\uff1e", "5"],
)
def test_whatever_else_is_written_is_said(tmp_path: Path, text: str) -> None:
    async def test() -> None:
        for served in (TINY_MODEL, MINI_MODEL):
            async with serving(tmp_path, served) as client:
                reply, _ = await post(client, text=text)
                assert (reply.status, len(client.engine.submitted)) == (200, 1)

    run(test)


def test_a_text_in_letters_the_model_does_not_have_is_refused_by_that_model_only(tmp_path: Path) -> None:
    async def test() -> None:
        for served, status in ((TINY_MODEL, 200), (MINI_MODEL, 400)):
            async with serving(tmp_path, served) as client:
                assert (await post(client, text="你好。"))[0].status == status

    run(test)


def test_numbers_are_read_out_for_a_checkpoint_that_asks_for_it_unless_told_otherwise(tmp_path: Path) -> None:
    async def test() -> None:
        said = {(True, True): "five dollars", (True, False): "$5", (False, True): "$5", (False, False): "$5"}
        for (bundled, normalize), words in said.items():
            served = MINI_MODEL if bundled else TINY_MODEL
            async with serving(tmp_path, served) as client:
                await post(client, text="$5", normalize=normalize)
                assert np.array_equal(client.engine.submitted[0][1], served.prompts.build([words], [])[0])

    run(test)


def test_the_configured_length_of_a_turn_wins_over_the_checkpoint(tmp_path: Path) -> None:
    async def test() -> None:
        for configured, requests in ((0, 3), (55, 5), (1000, 1)):
            async with serving(tmp_path, MINI_MODEL, turn_bytes=configured) as client:
                await post(client, text=TEXT)
                assert len(client.engine.submitted) == requests

    run(test)
