"""The prefix cache: shared pages have equal content, held pages stay, and unused pages make room."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from common.config import Scheduler as Settings
from scheduler.resources.pages import PagePool
from scheduler.resources.prefix_cache import page_keys
from tests.unit.scheduler.world import World

PAGE = 4


def prompt_of(columns: list[int]) -> np.ndarray:
    prompt = np.zeros((11, len(columns)), np.int32)
    prompt[0] = columns
    return prompt


def test_keys_cover_every_codebook() -> None:
    plain = prompt_of([5] * 9)
    for row in range(11):
        other = plain.copy()
        other[row, 2] += 1
        keys = page_keys(plain, PAGE), page_keys(other, PAGE)
        assert keys[0][0] != keys[1][0]
        assert keys[0][1] == keys[1][1]


def test_at_least_one_position_is_left_to_prefill() -> None:
    assert len(page_keys(prompt_of([1] * 8), PAGE)) == 1
    assert len(page_keys(prompt_of([1] * 9), PAGE)) == 2
    assert page_keys(prompt_of([1]), PAGE) == []


@given(st.lists(st.tuples(st.lists(st.integers(0, 1), max_size=4), st.booleans()), max_size=40), st.integers(6, 12))
def test_pages_are_shared_pinned_and_evicted_least_recently_used(
    visits: list[tuple[list[int], bool]], size: int
) -> None:
    """Users of a pool bring prompts of some pages, stay or leave; pages from the cache have the right content."""
    pool = PagePool(size)
    content: dict[int, tuple[int, ...]] = {}
    staying: list[tuple[list, list[int], tuple[int, ...]]] = []
    for path, leaves_first in visits:
        if leaves_first and staying:
            shared, pages, _ = staying.pop(0)
            pool.release(pages[len(shared) :], shared, 0, -1)
            pool.settle(0)
        keys = [bytes(path[: depth + 1]) for depth in range(len(path))]
        shared = pool.admit(keys, len(path) + 1)
        if shared is None:
            assert pool.available < len(path) + 1
            continue
        pages = [node.page for node in shared]
        for depth, page in enumerate(pages):
            assert content[page] == tuple(path[: depth + 1])
        pages += [pool.take() for _ in range(len(path) + 1 - len(shared))]
        held = [page for _, others, _ in staying for page in others]
        assert not set(pages[len(shared) :]) & set(held), "a page in use is not handed out again"
        for depth in range(len(shared), len(path)):
            content[pages[depth]] = tuple(path[: depth + 1])
        pool.share(shared, keys, pages)
        staying.append((shared, pages, tuple(path)))
        for _, others, prefix in staying:
            for depth in range(len(prefix)):
                assert content[others[depth]] == prefix[: depth + 1], "what is in use is not overwritten"
    for shared, pages, _ in staying:
        pool.release(pages[len(shared) :], shared, 0, -1)
    pool.settle(0)
    assert pool.active == 0
    assert pool.free + pool.cached == size


def test_the_second_request_of_a_voice_prefills_only_its_own_text_and_less_than_a_page() -> None:
    world = World(Settings(prefill_budget=1024))
    worker = world.join_ar(slots=4, pages=256, page_size=16, context=1024)
    world.join_vocoder()
    world.submit([500 + 40], [3], voice=1)
    world.settle()
    assert worker.prefilled == 540
    world.submit([500 + 70], [3], voice=1)
    world.settle()
    own = worker.prefilled - 540
    assert own < 570 - 540 + 2 * 16, "positions of the page that the first text ended in are its own"
    world.check_idle()


def test_without_the_cache_everything_is_prefilled() -> None:
    world = World(Settings(prefix_cache=False))
    worker = world.join_ar(slots=4, pages=256, page_size=16, context=1024)
    world.join_vocoder()
    for _ in range(2):
        world.submit([100], [3], voice=1)
        world.settle()
    assert worker.prefilled == 200
    assert worker.hello.pages == world.core.ar_workers[worker.incarnation].pages.free


def test_a_request_goes_to_the_worker_that_has_its_voice() -> None:
    world = World(Settings())
    first = world.join_ar(slots=4, pages=64, page_size=4, context=128)
    world.join_vocoder()
    world.submit([40], [2], voice=1)
    world.settle()
    second = world.join_ar(slots=8, pages=64, page_size=4, context=128)
    world.submit([40], [2], voice=2)
    world.settle()
    assert second.prefilled == 40, "a new voice goes where there is most room"
    before = first.prefilled
    world.submit([40], [2], voice=1)
    world.settle()
    assert first.prefilled - before == 4, "a known one to its pages"


def test_the_eviction_heap_has_an_entry_per_page_and_not_per_request() -> None:
    world = World(Settings())
    worker = world.join_ar(slots=4, pages=64, page_size=4, context=128)
    world.join_vocoder()
    for n in range(60):
        world.submit([20], [2], voice=n % 3)
        world.settle()
    cache = world.core.ar_workers[worker.incarnation].pages.cache
    assert len(cache._heap) <= cache.nodes <= 64
