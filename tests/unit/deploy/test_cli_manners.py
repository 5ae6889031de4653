"""The shoal command's manners: version, options before the subcommand, hints, verdicts."""

from __future__ import annotations

import json

import pytest
from cli_fakes import serving, shoal
from click.testing import CliRunner

from common.version import VERSION
from deploy.cli import main
from deploy.cli.trace import has_spans


def test_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"shoal, version {VERSION}\n"


@pytest.mark.parametrize("before", [True, False])
def test_the_server_may_be_named_before_and_after_the_subcommand(before: bool) -> None:
    with serving() as server:
        option, command = ["--server", server.address], ["voices", "list"]
        done = CliRunner().invoke(main, [*option, *command] if before else [*command, *option])
        assert done.exit_code == 0, done.output


def test_the_option_after_the_subcommand_takes_precedence() -> None:
    with serving() as server:
        arguments = ["--server", "http://127.0.0.1:1", "voices", "list", "--server", server.address]
        assert CliRunner().invoke(main, arguments).exit_code == 0


def test_top_prints_one_table_when_the_output_is_no_terminal() -> None:
    with serving() as server:
        done = shoal(server, "top", "--interval", "0.2")
        assert (done.exit_code, done.output.count("streams running")) == (0, 1), done.output


def test_rm_is_delete() -> None:
    with serving() as server:
        assert (
            shoal(server, "voices", "rm", "anna", "-y").output == shoal(server, "voices", "delete", "anna", "-y").output
        )


def test_the_bench_ends_with_a_verdict() -> None:
    with serving() as server:
        done = shoal(server, "bench", "-n", "2")
        assert "2 of 2 streams were complete" in done.output.splitlines()[-1], done.output


@pytest.mark.parametrize(
    ("events", "full"), [([], False), ([{"ph": "M"}], False), ([{"ph": "M"}, {"ph": "X"}], True), ([{"ph": "b"}], True)]
)
def test_a_trace_of_track_names_only_is_empty(events: list[dict[str, str]], full: bool) -> None:
    assert has_spans(json.dumps({"traceEvents": events}).encode()) is full


@pytest.mark.parametrize(("status", "hint"), [(401, True), (403, False), (429, False), (500, False)])
def test_a_missing_key_is_told_with_both_ways_to_give_it(status: int, hint: bool) -> None:
    with serving() as server:
        server.status = status
        done = shoal(server, "voices", "list")
        assert done.exit_code == 1
        assert ("--api-key" in done.output) is hint
        assert ("SHOAL_API_KEY" in done.output) is hint


def test_a_bench_with_nothing_but_failures_says_that_first() -> None:
    with serving() as server:
        server.status = 500
        done = shoal(server, "bench", "-n", "3", "--warm-up", "0")
        assert done.exit_code == 1
        assert "FAILED: none of 3 requests got a complete stream" in done.output
        assert done.output.index("FAILED") < done.output.index("API, wav")
