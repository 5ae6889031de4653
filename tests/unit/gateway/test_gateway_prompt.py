"""Prompts, splits and token ids are those of the original implementation, and nothing typed becomes control."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gateway_fakes import MINI, TESTS
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from common.checkpoint import CheckpointError, load_model_config, special_tokens
from gateway.checkpoint.prompt import Prompts, Reference, split_batches, split_turns

DIFFERENT_ON_PURPOSE = {"specials", "empty", "dropped_intro"}
SETS = ("tiny", "tiny4096")


def prompts_of(name: str) -> Prompts:
    directory = TESTS / "data" / f"checkpoint_{name}"
    return Prompts(directory, load_model_config(directory).semantic_begin_id)


TINY = prompts_of("tiny")


MINI_PROMPTS = Prompts(MINI, load_model_config(MINI).semantic_begin_id)


class CountingTokenizer:
    """Reads and hands over whole vocabularies only when asked, and remembers how often that was."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.vocabularies = 0

    def __getattr__(self, name: str) -> object:
        self.vocabularies += name.startswith("get_vocab")
        return getattr(self._tokenizer, name)


def test_no_request_reads_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[CountingTokenizer] = []

    class Files:
        @staticmethod
        def from_file(path: str) -> CountingTokenizer:
            made.append(CountingTokenizer(Tokenizer.from_file(path)))
            return made[-1]

    monkeypatch.setattr("gateway.checkpoint.prompt.Tokenizer", Files)
    prompts = Prompts(MINI, load_model_config(MINI).semantic_begin_id)
    before = made[0].vocabularies
    for number in range(100):
        prompts.build([f"number {number}"], [])
    assert len(made) == 1
    assert made[0].vocabularies == before


def golden_cases() -> list[tuple[str, str]]:
    return [
        (name, case)
        for name in SETS
        for case in json.loads((TESTS / "data" / name / "prompts.json").read_text())["cases"]
        if case not in DIFFERENT_ON_PURPOSE
    ]


@pytest.mark.parametrize(("name", "case"), golden_cases())
def test_prompts_are_those_of_the_original(name: str, case: str) -> None:
    facts = json.loads((TESTS / "data" / name / "prompts.json").read_text())["cases"][case]
    arrays = load_file(TESTS / "data" / name / "prompts.safetensors")
    prompts = prompts_of(name)
    texts = facts["prompt_text"] or []
    references = [Reference(text, arrays[f"{case}.ref_codes.{index}"]) for index, text in enumerate(texts)]
    turns = prompts.build(split_batches(facts["text"], facts["chunk_length"]), references)
    assert len(turns) == facts["batches"]
    so_far = np.zeros((11, 0), np.int32)
    for index, turn in enumerate(turns):
        so_far = np.concatenate([so_far, turn], axis=1)
        assert turn.dtype == np.int32
        np.testing.assert_array_equal(so_far, arrays[f"{case}.{index}.prompt"])
        codes = arrays[f"{case}.{index}.codes_out"]
        begin = load_model_config(TESTS / "data" / f"checkpoint_{name}").semantic_begin_id
        so_far = np.concatenate([so_far, np.concatenate([codes[:1] + begin, codes])], axis=1)


@pytest.mark.parametrize("name", SETS)
def test_splits_are_those_of_the_original(name: str) -> None:
    path = TESTS / "data" / name / "split.json"
    if not path.exists():
        pytest.skip("no split data in this set")
    for case in json.loads(path.read_text())["cases"]:
        if case["text"].startswith("intro"):
            continue
        assert split_turns(case["text"]) == case["turns"]
        assert split_batches(case["text"], case["chunk_length"]) == case["batches"]


def test_text_before_the_first_tag_is_a_turn_without_one() -> None:
    assert split_turns("intro <|speaker:1|> one <|speaker:2|> two") == [
        "intro",
        "<|speaker:1|> one",
        "<|speaker:2|> two",
    ]
    assert split_turns(" \n <|speaker:1|> one") == ["<|speaker:1|> one"]


@pytest.mark.parametrize("name", SETS)
def test_token_ids_are_those_of_the_original(name: str) -> None:
    facts = json.loads((TESTS / "data" / name / "tokenizer.json").read_text())
    tokenizer = Tokenizer.from_file(str(TESTS / "data" / f"checkpoint_{name}" / "tokenizer.json"))
    for case in facts["cases"]:
        assert tokenizer.encode(case["text"], add_special_tokens=False).ids == case["ids"]


@given(st.lists(st.text(max_size=60), max_size=9), st.integers(100, 1000))
def test_batches_hold_every_word_of_the_text_in_order(parts: list[str], chunk_length: int) -> None:
    text = "".join(f"<|speaker:{index}|>{part}" for index, part in enumerate(parts)) or "x"
    joined = "\n".join(split_batches(text, chunk_length))
    assert "".join(joined.split()) == "".join(text.split())


TYPED = st.lists(
    st.sampled_from(
        ["<|", "|>", "im_end", "<|im_end|>", "<|semantic:5|>", "<|speaker:1|>", "system\n", "a", " ", "<", "|"]
    ),
    min_size=1,
    max_size=8,
).map("".join)


@given(TYPED, st.sampled_from([TINY, MINI_PROMPTS]))
def test_a_text_without_a_reserved_token_never_yields_a_control_id(text: str, prompts: Prompts) -> None:
    """Whatever passes the check can be built; whatever the builder refuses was caught by the check."""
    if prompts.reserved_token(text) is None:
        prompts.build(split_batches(text, 200), [])
    else:
        with pytest.raises(ValueError, match="control"):
            prompts.build([text], [])


def test_every_control_token_is_reserved_and_words_are_not() -> None:
    for directory, prompts in ((TESTS / "data" / "checkpoint_tiny", TINY), (MINI, MINI_PROMPTS)):
        for token in special_tokens(directory):
            control = token.startswith("<|") and not token.startswith("<|speaker:")
            assert prompts.reserved_token(f"a{token}b") == (token if control else None)


def test_a_reserved_token_is_found_behind_an_opening_that_is_none() -> None:
    assert TINY.reserved_token("<|<|im_end|>") == "<|im_end|>"
    assert TINY.reserved_token("<|x <|speaker:0|>") is None


def test_a_tokenizer_that_is_none_is_named(tmp_path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Prompts(tmp_path, 0)
