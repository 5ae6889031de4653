"""Workers elsewhere, over tcp with keys, with the real processes: they speak like local ones, and strangers do not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from common import key_directory as key_files
from deploy.cli.keys import GROUP, KNOWN_TO_WORKERS
from tests.integration.client import Reply, gather, speak
from tests.integration.group import Group, costs, eventually, free_port, running
from tests.integration.remote import Remote, worker

FRAMES = 300  # for 3 s all streams are under way
STREAMS = 6
PAGES = 2048  # of one AR worker
REMOTE = ("ar_worker-b", "vocoder_worker-b")


def options(address: str, directory: Path) -> list[str]:
    """Of the group and of its workers elsewhere. Slots for half of the streams each, so that all are needed."""
    settings = {"ar_worker__slots": STREAMS // 2, "vocoder_worker__slots": STREAMS // 2}
    tcp = {"transport__scheduler": address, "transport__keys": str(directory)}
    return costs(step_ms=10.0, **settings, **tcp)


def audio_host(host: str) -> list[str]:
    return ["--set", f"transport.audio_host='{host}'"]


def make_keys(directory: Path, *more: str) -> Path:
    for name in (*GROUP, *more):
        key_files.create(directory, name)
    return directory


def given(keys: Path, name: str, target: Path, **replaced: str) -> Path:
    """The directory of one worker. ``replaced``: a key under a name that is not its own."""
    target.mkdir()
    shutil.copy(keys / f"{replaced.get(name, name)}.key_secret", target / f"{name}.key_secret")
    for known in KNOWN_TO_WORKERS:
        shutil.copy(keys / f"{replaced.get(known, known)}.key", target / f"{known}.key")
    return target


def streams(base: str) -> list[Reply]:
    replies = gather(*(speak(base, f"Stream {n}.", seed=n, max_new_tokens=FRAMES) for n in range(STREAMS)))
    assert [reply.status for reply in replies] == [200] * STREAMS
    return replies


@contextmanager
def remote_workers(
    tmp_path: Path, keys: Path, address: str, host: str, prefix: Sequence[str] = ()
) -> Iterator[list[Remote]]:
    """One of each kind, whose vocoder is reached at ``host``."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                worker(
                    name,
                    tmp_path / name,
                    [*options(address, given(keys, name, tmp_path / f"{name}-keys")), *audio_host(host)],
                    prefix,
                )
            )
            for name in REMOTE
        ]


def check_shared_work(group: Group, remote: list[Remote], local: list[Reply]) -> None:
    """All the workers take part, and what they make is what a group without them makes."""
    eventually(lambda: all("registered with the scheduler" in one.log() for one in remote), 30)
    eventually(group.ready)
    assert group.metric("shoal_kv_pages") == 2 * PAGES
    with ThreadPoolExecutor(1) as threads:
        replies = threads.submit(streams, group.base)
        eventually(lambda: group.metric("shoal_num_requests_running") == STREAMS)
        for reply, expected in zip(replies.result(), local, strict=True):
            assert np.array_equal(reply.samples, expected.samples)


@pytest.fixture(scope="module")
def local(cost_group: Group) -> list[Reply]:
    """The streams of a group whose processes talk over sockets in the run directory."""
    return streams(cost_group.base)


def test_workers_elsewhere_with_keys_speak_as_local_ones(tmp_path: Path, local: list[Reply]) -> None:
    keys, address = make_keys(tmp_path / "keys", *REMOTE), f"tcp://127.0.0.1:{free_port()}"
    with (
        running(*options(address, keys), *audio_host("127.0.0.1")) as group,
        remote_workers(tmp_path, keys, address, "127.0.0.1") as remote,
    ):
        check_shared_work(group, remote, local)
        for one in remote:
            one.process.terminate()
            assert one.process.wait(20) == 0, "let go by the scheduler"
        eventually(lambda: group.metric("shoal_kv_pages") == PAGES)
        assert group.ready(), "who came from elsewhere may go"


@pytest.mark.slow
def test_who_has_no_key_that_is_known_gets_no_work(tmp_path: Path) -> None:
    keys, address = make_keys(tmp_path / "keys", "ar_worker-b"), f"tcp://127.0.0.1:{free_port()}"
    key_files.create(tmp_path / "others", "ar_worker-x")
    shutil.copy(keys / "scheduler.key", tmp_path / "others")
    misled = given(keys, "ar_worker-b", tmp_path / "misled", scheduler="gateway")
    thief = given(keys, "ar_worker-c", tmp_path / "thief", **{"ar_worker-c": "ar_worker-b"})
    with running(*options(address, keys)) as group, ExitStack() as stack:

        def start(name: str, run_dir: str, directory: Path) -> Remote:
            return stack.enter_context(worker(name, tmp_path / run_dir, options(address, directory)))

        stranger = start("ar_worker-x", "stranger-run", tmp_path / "others")
        deceived = start("ar_worker-b", "misled-run", misled)
        impostor = start("ar_worker-c", "thief-run", thief)
        no_connection = "no connection to scheduler: its key is not the one we have, or ours is not known there"
        eventually(lambda: no_connection in stranger.log() and no_connection in deceived.log(), 20)
        scheduler_log = group.run_dir / "scheduler.log"
        eventually(lambda: "refused a peer whose key is not known" in scheduler_log.read_text())
        eventually(lambda: "refused a peer with the key of another one" in scheduler_log.read_text())
        streams(group.base)
        assert group.metric("shoal_kv_pages") == PAGES
        for nobody in (stranger, deceived, impostor):
            assert "registered" not in nobody.log()

        shutil.copy(tmp_path / "others" / "ar_worker-x.key", keys)
        eventually(lambda: group.metric("shoal_kv_pages") == 2 * PAGES, 10)
        assert "registered" in stranger.log(), "a key that is added counts at once"


@pytest.mark.slow
def test_workers_on_another_host_speak_as_local_ones(tmp_path: Path, local: list[Reply]) -> None:
    here, there = "10.231.77.1", "10.231.77.2"
    keys, address = make_keys(tmp_path / "keys", *REMOTE), f"tcp://{here}:{free_port()}"
    with (
        other_host(here, there) as prefix,
        running(*options(address, keys), *audio_host(here)) as group,
        remote_workers(tmp_path, keys, address, there, prefix) as remote,
    ):
        check_shared_work(group, remote, local)


@contextmanager
def other_host(here: str, there: str) -> Iterator[list[str]]:
    """A network namespace with a cable between the two addresses: the command that runs others in it."""
    assert os.geteuid() == 0, "this test needs root, for a network namespace"
    assert shutil.which("ip"), "this test needs ip (Debian's package iproute2)"
    name, ours, theirs = (f"{part}{os.getpid()}" for part in ("shoal", "sha", "shb"))

    def ip(*arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=10)
        assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"

    ip("netns", "add", name)
    try:
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        ip("address", "add", f"{here}/30", "dev", ours)
        ip("link", "set", ours, "up")
        ip("-n", name, "address", "add", f"{there}/30", "dev", theirs)
        ip("-n", name, "link", "set", theirs, "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield ["ip", "netns", "exec", name]
    finally:
        ip("netns", "delete", name)  # and the cable with it
