"""No character of a text is lost, whatever it is and however it arrives; and what belongs together stays together."""

from __future__ import annotations

import time

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from gateway.checkpoint.prompt import split_batches, spoken_part
from gateway.text.splitter import Splitter, size, split
from gateway.text.turns import TurnRules, group, turns_of

SCRAPS = [
    *[
        "Dr. ",
        "e.g. ",
        "U.S. ",
        "The ",
        "end. ",
        "end.",
        "3.14 ",
        "1. ",
        "etc. ",
        "No. ",
        "5 ",
        "what? ",
        "... ",
        '." ',
    ],
    *["\n", "\n\n", "\r\n", " ", "。", "你好，", "，\u0301", "。\u200d", "！」", "…", "—", ", ", "word ", "-----"],
    *["<|speaker:1|>", "<|speaker:", "<", "[whisper] ", "(laugh) ", "[a", "| a | b |\n", "a.b@c.org "],
    *["👨‍👩‍👧‍👦", "é", "\u0301", "\u0600", "🇫🇷", "https://x.org/a.b?c. "],
]
TEXTS = st.lists(st.sampled_from(SCRAPS), max_size=60).map("".join) | st.text(max_size=300)
LIMITS = st.integers(40, 200)


@given(TEXTS, LIMITS)
def test_the_parts_are_the_text(text: str, limit: int) -> None:
    assert "".join(split(text, limit)) == text


@given(TEXTS, LIMITS, st.data())
def test_the_parts_are_the_same_however_the_text_arrives(text: str, limit: int, data: st.DataObject) -> None:
    splitter, parts, rest = Splitter(limit), [], text
    while rest:
        cut = data.draw(st.integers(1, 9))
        parts += splitter.feed(rest[:cut])
        rest = rest[cut:]
    assert [*parts, *splitter.flush()] == split(text, limit)


@given(TEXTS, LIMITS)
def test_a_part_is_too_long_only_if_it_is_one_letter_or_tag(text: str, limit: int) -> None:
    for part in split(text, limit):
        if size(part) > limit:
            assert len(regex.findall(r"<\|speaker:\d+\|>\s*|\[[^\[\]\n]{1,64}\]\s*|\([a-z \-]+\)\s*|\X", part)) <= 2


@given(TEXTS, LIMITS)
def test_no_letter_and_no_speaker_tag_is_cut(text: str, limit: int) -> None:
    places, place = set(), 0
    for part in split(text, limit):
        place += len(part)
        places.add(place)
    for found in regex.finditer(r"\X", text):
        inside = set(range(found.start() + 1, found.end()))
        assert not inside & places
    for found in regex.finditer(r"<\|speaker:\d+\|>", text):
        assert not set(range(found.start() + 1, found.end())) & places


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith paid $3.14 for 1,000 items.", " He left."],
        ["He lives in the U.S. Army base.", " Right?", " Yes!"],
        ["He lives in the U.S.", " The house is old."],
        ["See www.example.com/a.b for more.", " Or mail j.doe@x.org today."],
        ["J. K. Rowling wrote it... and left.", " So do I.", " Really."],
        ["It is 5 p.m. now.", ' "Stop!" he cried.', " Then nothing."],
        ["Things such as tea, milk, etc. are here.", " Bread, etc.", " We go."],
        ["你好。", "今天天气很好！", "“真的吗？”", "他问。"],
        ["First line", "\nSecond line", "\n\nA paragraph, e.g. this one."],
        ["hard wrapped\ntext goes on.", " Next."],
        ["1. Apples are red.", "\n2. Pears are green."],
        ["It was 1997.", " No. 5 is alive."],
        ["No.", " I will not."],
        ["क्या हाल है।", " ठीक है।"],
        ["[whisper] Hello there.", " (laugh) How are you?"],
        ["Hi", "<|speaker:1|>Hello.", "<|speaker:0|>Bye"],
        ["😀 fine.", " 👍🏽"],
        ["no punctuation at all"],
    ],
)
def test_sentences(sentences: list[str]) -> None:
    assert split("".join(sentences), 300) == sentences


def test_a_sentence_is_given_out_as_soon_as_it_is_whole() -> None:
    splitter = Splitter(300)
    assert splitter.feed("Hello there") == []
    assert splitter.feed(".") == []  # it might be 3.14
    assert splitter.feed(" ") == ["Hello there."]
    assert splitter.feed("How are you? I") == [" How are you?"]
    assert splitter.feed(" met Dr. ") == []
    assert splitter.flush() == [" I met Dr. "]


def test_long_sentences_are_cut_at_clauses_then_words_then_anywhere() -> None:
    assert split("a long clause, and another one that goes on for a while", 40)[0] == "a long clause,"
    assert all(part.strip().startswith("word") for part in split("word " * 100, 62))
    assert [len(part) for part in split("x" * 100, 40)] == [40, 40, 20]
    assert split("你好" * 30, 40)[0] == "你好" * 6 + "你"
    tagged = split("some words that lead up to it [in a hurry] here and so on", 45)
    assert tagged[1].startswith(" [in a hurry] here")


@pytest.mark.parametrize("scrap", ["x", ".", " ", "a ", "a. ", "<", "[a", "\u0301"])
def test_hostile_texts_take_no_time(scrap: str) -> None:
    text = scrap * (20_000 // len(scrap))
    began = time.perf_counter()
    assert "".join(split(text, 110)) == text
    assert time.perf_counter() - began < 2


@given(st.lists(st.text(min_size=1, max_size=90), max_size=30), st.integers(100, 300))
def test_groups_are_as_few_as_can_be_and_even(parts: list[str], limit: int) -> None:
    groups = group(parts, limit)
    assert "".join(groups) == "".join(parts)
    filled, total = 1 if parts else 0, 0
    for index, part in enumerate(parts):
        if index and total + size(part) > limit:
            filled, total = filled + 1, 0
        total += size(part)
    assert len(groups) == filled
    if len(groups) > 1 and max(map(size, parts)) < limit / 4:
        assert max(map(size, groups)) - min(map(size, groups)) <= limit


RULES = TurnRules(limit=120, alone=False)


@given(TEXTS)
def test_turns_hold_every_word_in_order(text: str) -> None:
    for rules in (RULES, TurnRules(limit=60, alone=True)):
        turns = turns_of(text, 100, rules)
        assert "".join("".join(spoken_part(turn) for turn in turns).split()) == "".join(spoken_part(text).split())


def test_a_text_that_fits_is_one_turn_as_it_is() -> None:
    assert turns_of("  Hello.\n\nHow are you? ", 200, RULES) == ["  Hello.\n\nHow are you? "]


def test_texts_with_speakers_are_batched_as_ever_unless_a_turn_is_too_long() -> None:
    text = "".join(f"<|speaker:{index % 2}|>{'word ' * 10}" for index in range(7))
    assert turns_of(text, 200, RULES) == split_batches(text, 200)
    long = turns_of("<|speaker:1|>" + "It goes on. " * 40, 200, RULES)
    assert len(long) == 3
    assert all(turn.startswith("<|speaker:1|>") and size(turn) <= 200 for turn in long)
    alone = turns_of("a<|speaker:0|>b<|speaker:1|>c", 200, TurnRules(120, alone=True))
    assert alone == ["a", "<|speaker:0|>b", "<|speaker:1|>c"]


@pytest.mark.parametrize("length", [100, 300, 1000, 3000])
def test_long_texts_become_turns_of_about_the_limit(length: int) -> None:
    text = ("It was the best of times, it was the worst of times. " * 60)[:length]
    turns = turns_of(text, 200, TurnRules(300, alone=False))
    assert all(size(turn) <= 300 for turn in turns)
    assert len(turns) <= -(-length // 240)
