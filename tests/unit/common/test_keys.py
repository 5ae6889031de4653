"""Keys: who has one that is known may connect over tcp, under its own name, and nobody else."""

from __future__ import annotations

import logging
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from common import key_directory as key_files
from common import transport
from common.config import ConfigError, resolve
from common.key_directory import CurveKeys
from common.messages import Ping, pack, unpack
from common.transport import CONNECTED, DISCONNECTED, Context
from tests.unit.common.test_transport import eventually

ANYWHERE = "tcp://127.0.0.1:*"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("scheduler", "gateway", "worker-b"):
        key_files.create(tmp_path / "keys", name)
    return tmp_path / "keys"


@pytest.fixture
def contexts(directory: Path) -> Iterator[dict[str, Context]]:
    """One for each process."""
    made = {name: Context(CurveKeys(directory, name)) for name in ("scheduler", "worker-b")}
    yield made
    for context in made.values():
        context.close()


def elsewhere(directory: Path, name: str) -> Path:
    """The directory of a worker on another machine, that the scheduler knows nothing of."""
    target = directory.parent / "elsewhere"
    key_files.create(target, name)
    shutil.copy(directory / "scheduler.key", target)
    return target


def connects(context: Context, endpoint: str) -> bool:
    _, monitor = context.dealer(endpoint, "me", "scheduler")
    try:
        return bool(eventually(lambda: CONNECTED in monitor.events(), 1.5))
    except AssertionError:
        return False


def test_a_known_peer_connects_and_its_messages_carry_its_name(contexts: dict[str, Context]) -> None:
    router, endpoint = contexts["scheduler"].router(ANYWHERE)
    dealer, monitor = contexts["worker-b"].dealer(endpoint, "me", "scheduler")
    assert eventually(monitor.events) == [CONNECTED]
    assert dealer.getsockopt(zmq.MECHANISM) == zmq.CURVE
    transport.send(dealer, pack(Ping(), source="me", target=""))
    frames = eventually(lambda: transport.receive(router))
    assert unpack(frames[1:]).body == Ping()
    assert transport.key_owner(frames) == "worker-b"
    transport.send(router, pack(Ping(), source="scheduler", target="me"), "me")
    assert unpack(eventually(lambda: transport.receive(dealer))).source == "scheduler"


def test_an_unknown_peer_is_refused_until_its_key_is_added(
    directory: Path, contexts: dict[str, Context], caplog: pytest.LogCaptureFixture
) -> None:
    _, endpoint = contexts["scheduler"].router(ANYWHERE)
    stranger = Context(CurveKeys(elsewhere(directory, "stranger"), "stranger"))
    dealer, monitor = stranger.dealer(endpoint, "me", "scheduler")
    with caplog.at_level(logging.WARNING):
        eventually(lambda: [*monitor.events(), "ours is not known there" in caplog.text][-1])
        eventually(lambda: "refused a peer whose key is not known" in caplog.text)
    with pytest.raises(transport.PeerGoneError):
        transport.send(dealer, [b"x"])
    shutil.copy(directory.parent / "elsewhere" / "stranger.key", directory)
    assert CONNECTED in eventually(monitor.events)
    stranger.close()


def test_a_key_that_is_taken_away_is_unknown_from_then_on(directory: Path, contexts: dict[str, Context]) -> None:
    _, endpoint = contexts["scheduler"].router(ANYWHERE)
    assert connects(contexts["worker-b"], endpoint)
    (directory / "worker-b.key").unlink()
    assert not connects(contexts["worker-b"], endpoint)


def test_another_server_s_key_never_connects(
    directory: Path, contexts: dict[str, Context], caplog: pytest.LogCaptureFixture
) -> None:
    _, endpoint = contexts["scheduler"].router(ANYWHERE)
    shutil.copy(directory / "gateway.key", directory / "scheduler.key")
    _, monitor = contexts["worker-b"].dealer(endpoint, "me", "scheduler")
    refused = "no connection to scheduler: its key is not the one we have"
    events: list[int] = []
    eventually(lambda: [events.extend(monitor.events()), refused in caplog.text][1])
    assert CONNECTED not in events


def test_a_peer_without_keys_does_not_get_in(contexts: dict[str, Context], caplog: pytest.LogCaptureFixture) -> None:
    _, endpoint = contexts["scheduler"].router(ANYWHERE)
    plain = Context()
    _, monitor = plain.dealer(endpoint, "me", "scheduler")
    eventually(lambda: monitor.events() or "one side encrypts, the other does not" in caplog.text)
    assert CONNECTED not in monitor.events()
    plain.close()


def test_after_a_mismatch_a_process_connects_to_a_server_that_was_restarted_with_other_settings(
    directory: Path,
) -> None:
    plain, encrypted = Context(), Context(CurveKeys(directory, "scheduler"))
    _, endpoint = encrypted.router(ANYWHERE)
    _, monitor = plain.dealer(endpoint, "me", "scheduler")
    eventually(lambda: [monitor.events(), monitor.given_up][1])
    encrypted.close()
    restarted = Context()
    restarted.router(endpoint)
    assert CONNECTED not in monitor.events()
    monitor.reconnect()
    assert eventually(lambda: CONNECTED in monitor.events())
    plain.close()
    restarted.close()


def test_a_server_that_hangs_up_before_the_handshake_is_done_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """What the slower side of a mismatch sees, at each try."""
    plain = Context()
    with socket.create_server(("127.0.0.1", 0)) as server:
        hang_up = threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(3)])
        hang_up.start()
        _, monitor = plain.dealer(f"tcp://127.0.0.1:{server.getsockname()[1]}", "me", "scheduler")
        eventually(lambda: [monitor.events(), "no connection to scheduler: it hangs up" in caplog.text][1])
        hang_up.join()
    plain.close()


def test_a_server_that_hangs_up_once_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    """It may just be ending, and its successor is there at the next try."""
    plain = Context()
    with socket.create_server(("127.0.0.1", 0)) as server:
        _, monitor = plain.dealer(endpoint := f"tcp://127.0.0.1:{server.getsockname()[1]}", "me", "scheduler")
        server.accept()[0].close()
        eventually(lambda: DISCONNECTED in monitor.events())
    plain.router(endpoint)
    assert eventually(lambda: CONNECTED in monitor.events())
    assert not caplog.records
    plain.close()


def test_sockets_of_the_run_directory_stay_as_they_are(contexts: dict[str, Context], tmp_path: Path) -> None:
    endpoint = transport.ipc_endpoint(tmp_path, "s")
    router, _ = contexts["scheduler"].router(endpoint)
    dealer, monitor = contexts["worker-b"].dealer(endpoint, "me", "scheduler")
    assert eventually(monitor.events) == [CONNECTED]
    assert dealer.getsockopt(zmq.MECHANISM) == zmq.NULL
    transport.send(dealer, [b"hello"])
    assert transport.key_owner(eventually(lambda: transport.receive(router))) is None


def test_a_listener_whose_key_is_not_there_is_named(directory: Path, contexts: dict[str, Context]) -> None:
    with pytest.raises(ConfigError, match=r"vocoder_worker-b\.key"):
        contexts["worker-b"].dealer("tcp://127.0.0.1:5555", "me", "vocoder_worker-b")


# Files ----------------------------------------------------------------------------------------------------------------


def test_only_the_owner_may_read_a_new_key_and_none_is_overwritten(directory: Path) -> None:
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700
    before = (directory / "gateway.key_secret").read_bytes()
    with pytest.raises(ConfigError, match="already"):
        key_files.create(directory, "gateway")
    assert (directory / "gateway.key_secret").read_bytes() == before


@pytest.mark.parametrize("name", ["", "../gateway", "a/b", "a b", "x" * 65])
def test_a_name_that_no_process_can_have_gets_no_key(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not 1 to 64"):
        key_files.create(tmp_path / "keys", name)


def test_a_key_that_can_t_be_used_is_named(directory: Path) -> None:
    with pytest.raises(ConfigError, match=r"transport\.keys: .*nobody\.key_secret"):
        CurveKeys(directory, "nobody")
    (directory / "gateway.key_secret").chmod(0o644)
    with pytest.raises(ConfigError, match=r"every user may read .*gateway\.key_secret"):
        CurveKeys(directory, "gateway")
    shutil.copy(directory / "worker-b.key", directory / "public.key_secret")
    with pytest.raises(ConfigError, match="holds no secret key"):
        CurveKeys(directory, "public")
    (directory / "short.key_secret").write_text('curve\n    public-key = "abc"\n')
    with pytest.raises(ConfigError, match="40 characters"):
        CurveKeys(directory, "short")


def test_a_broken_certificate_does_not_hide_the_others(directory: Path) -> None:
    (directory / "a.key").write_text("nonsense")
    keys = CurveKeys(directory, "gateway")
    assert keys.owner(zmq.utils.z85.decode(keys.public_key("worker-b"))) == "worker-b"


# Configuration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("transport.scheduler='tcp://10.0.0.1:5560'", "transport.scheduler: 10.0.0.1"),
        ("transport.scheduler='tcp://*:5560'", r"transport.scheduler: \*"),
        ("transport.scheduler='tcp://speech.example:5560'", "transport.scheduler: speech.example"),
        ("transport.audio_host='10.0.0.1'", "transport.audio_host: 10.0.0.1"),
        ("transport.audio_host='0.0.0.0'", "transport.audio_host: 0.0.0.0"),
    ],
)
def test_nothing_leaves_the_machine_without_keys(setting: str, named: str) -> None:
    with pytest.raises(ConfigError, match=f"{named} is reached over the network: transport.keys"):
        transport.load_curve_keys(resolve(None, [setting]), "scheduler")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    config = resolve(None, [f"transport.scheduler='tcp://{host}:5560'", f"transport.audio_host='{host}'"])
    assert transport.load_curve_keys(config, "scheduler") is None


def test_with_keys_the_network_may_be_used(directory: Path) -> None:
    config = resolve(None, ["transport.scheduler='tcp://10.0.0.1:5560'", f"transport.keys='{directory}'"])
    keys = transport.load_curve_keys(config, "worker-b")
    assert keys is not None
    assert keys.name == "worker-b"
    (directory / "scheduler.key").unlink()
    with pytest.raises(ConfigError, match=r"scheduler\.key"):
        transport.load_curve_keys(config, "worker-b")
