"""``shoal keys``, ``worker`` and ``haproxy``: what they write, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from common.key_directory import CurveKeys
from deploy.cli import main
from deploy.group import worker
from deploy.targets.haproxy.config import BALANCE_FACTOR, IDS, Options, render

GROUPS = [f"10.0.0.{n}:8080" for n in range(1, 17)]


def shoal(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def servers(text: str) -> dict[str, str]:
    """Address to id, of the servers chosen by voice."""
    lines = text.split("\nbackend by_voice\n")[1].split("\nbackend ")[0].splitlines()
    words = [line.split() for line in lines if line.strip().startswith("server ")]
    return {word[2]: word[4] for word in words}


# Keys -----------------------------------------------------------------------------------------------------------------


def test_keys_are_made_for_a_group_and_for_a_worker_elsewhere(tmp_path: Path) -> None:
    assert shoal("keys", "create", tmp_path / "keys").exit_code == 0
    assert shoal("keys", "create", tmp_path / "keys", "ar_worker-b").exit_code == 0
    for name in ("scheduler", "gateway", "ar_worker", "vocoder_worker", "ar_worker-b"):
        assert CurveKeys(tmp_path / "keys", name).name == name


def test_a_worker_gets_its_own_secret_and_no_other(tmp_path: Path) -> None:
    shoal("keys", "create", tmp_path / "keys")
    shoal("keys", "create", tmp_path / "keys", "vocoder_worker-b")
    assert shoal("keys", "export", tmp_path / "keys", "vocoder_worker-b", tmp_path / "b").exit_code == 0
    expected = {"vocoder_worker-b.key_secret", "vocoder_worker-b.key", "scheduler.key", "gateway.key"}
    assert {path.name for path in (tmp_path / "b").iterdir()} == expected
    assert (tmp_path / "b" / "vocoder_worker-b.key_secret").stat().st_mode & 0o777 == 0o600
    CurveKeys(tmp_path / "b", "vocoder_worker-b").public_key("scheduler")


def test_what_can_t_be_done_with_keys_is_said(tmp_path: Path) -> None:
    shoal("keys", "create", tmp_path / "keys")
    again = shoal("keys", "create", tmp_path / "keys")
    assert again.exit_code == 1
    assert "there is a key for 'scheduler' already" in again.output
    nobody = shoal("keys", "export", tmp_path / "keys", "nobody", tmp_path / "b")
    assert nobody.exit_code == 1
    assert f"{tmp_path / 'keys'} has no nobody.key_secret, nobody.key" in nobody.output
    assert not (tmp_path / "b").exists()


# Workers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "settings", "named"),
    [
        ("ar_worker", [], "transport.scheduler: required"),
        ("vocoder_worker", ["transport.scheduler='tcp://127.0.0.1:5560'"], "transport.audio_host: required"),
        ("ar_worker", ["transport.scheduler='tcp://10.0.0.1:5560'"], "transport.keys"),
        ("ar_worker", ["transport.keys='/nowhere'", "transport.scheduler='tcp://10.0.0.1:5560'"], "b.key_secret"),
    ],
)
def test_a_worker_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], role: str, settings: list[str], named: str
) -> None:
    overrides = [option for setting in settings for option in ("--set", setting)]
    assert worker.main([role, "b", "--run-dir", str(tmp_path), *overrides]) == 2
    assert named in capsys.readouterr().err


# HAProxy --------------------------------------------------------------------------------------------------------------


def test_the_configuration_goes_to_standard_output() -> None:
    shown = shoal("haproxy", "--listen", "127.0.0.1:80", *GROUPS)
    assert shown.exit_code == 0
    assert shown.output == render(GROUPS, Options(listen="127.0.0.1:80"))
    for expected in ("balance hdr(X-Voice-Id)", f"hash-balance-factor {BALANCE_FACTOR}", "GET /readyz", "leastconn"):
        assert expected in shown.output


def test_the_place_of_a_group_does_not_depend_on_the_others() -> None:
    whole, fewer = servers(render(GROUPS)), servers(render(GROUPS[:4] + GROUPS[5:]))
    assert len(set(whole.values())) == len(GROUPS)
    assert whole == servers(render(GROUPS[::-1]))
    assert fewer.items() <= whole.items()


def test_ids_that_would_meet_on_the_ring_are_kept_apart() -> None:
    many = [f"h{n}:80" for n in range(3000)]  # of 2^20 ids, some meet
    ids = servers(render(many)).values()
    assert len(set(ids)) == len(many)
    assert all(0 < int(number) < IDS for number in ids)


def test_names_that_do_not_exist_yet_are_asked_for_again() -> None:
    text = render(["shoal-0.example:8080"], Options(dns="10.96.0.10:53"))
    assert text.count("resolvers groups resolve-prefer ipv4 init-addr none") == 2
    assert "nameserver dns 10.96.0.10:53" in text


@pytest.mark.parametrize(
    "groups",
    [[], ["10.0.0.1"], ["fd00::1"], ["[fd00::1]"], ["10.0.0.1:80 backup"], ["10.0.0.1:80\nevil"], ["a:1", "a:1"]],
)
def test_what_makes_no_configuration_is_refused(groups: list[str]) -> None:
    assert shoal("haproxy", *groups).exit_code == 2
