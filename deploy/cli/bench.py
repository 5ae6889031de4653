"""``shoal bench``: measures a speech server under load, as its listeners hear it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from deploy.cli.benchmark import report
from deploy.cli.benchmark.dialects import DIALECTS
from deploy.cli.benchmark.listener import Heard
from deploy.cli.benchmark.load import Load, Notice, Speaker, put
from deploy.cli.benchmark.prompts import SENTENCES, Prompts, cycle, made_up
from deploy.cli.benchmark.report import Result
from deploy.cli.files import OutputFile
from deploy.cli.server import Server, ServerError, server_options

T = TypeVar("T")

EPILOG = """\b
Examples:
  shoal bench                                          one client, 20 requests
  shoal bench --concurrency 1,4,16 --requests 200      closed loops of growing size
  shoal bench --rate 2,4,8 --seconds 60 --plot b.png   arrivals at random (Poisson)
  shoal bench --api openai --server http://other:8000 --voice alloy --json other.json
  shoal bench --field temperature=0.7 --field latency='"low"'

\b
What is measured, of whole streams only:
  first byte      from sending the request to the first byte of the reply
  first audio     to the first byte of sound; a header is no sound
  first playable  to 0.1 s of sound, with which a player may begin
  gap             between pieces of sound as they come
  underrun        how long a listener who began at first audio stands still in all
  real-time factor  duration of the request per second of sound

\b
A closed loop keeps so many requests under way and shows throughput; arrivals at random show
what a crowd feels, and that a server falls behind. Texts are made up and differ from their
first words on, so that no server gains by remembering.
"""


def _list_of(kind: Callable[[str], T], least: float) -> Callable[[click.Context, click.Parameter, str | None], list[T]]:
    def parse(_: click.Context, parameter: click.Parameter, text: str | None) -> list[T]:
        try:
            values = [kind(part) for part in (text or "").split(",") if part]
        except ValueError:
            raise click.BadParameter(f"{text!r} is not a list of numbers such as 1,4,16") from None
        if any(not value >= least for value in values):  # type: ignore[operator]
            raise click.BadParameter(f"each must be at least {least:g}")
        return values

    return parse


def _fields(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    fields = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        try:
            fields[name] = json.loads(value)
        except ValueError:
            fields[name] = value
    return fields


@click.command(epilog=EPILOG, short_help="Measure a speech server under load.")
@click.option("--api", type=click.Choice(list(DIALECTS)), default="fish", show_default=True, help="Kind of server.")
@click.option("--concurrency", "-c", metavar="N,…", callback=_list_of(int, 1), help="Closed loops of N clients.")
@click.option("--rate", "-r", metavar="R,…", callback=_list_of(float, 1e-6), help="Random arrivals, R per second.")
@click.option("--requests", "-n", type=click.IntRange(1), default=20, show_default=True, help="For each load.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Send for so long, instead of --requests.")
@click.option("--warm-up", type=click.IntRange(0), default=1, show_default=True, help="Requests before, not measured.")
@click.option("--format", "kind", type=click.Choice(["wav", "pcm"]), default="wav", show_default=True)
@click.option("--sample-rate", type=click.IntRange(1), help="Of pcm that does not tell; default: as the API's clients.")
@click.option("--voice", help="Voice of all requests.")
@click.option("--model", default="tts-1", show_default=True, help="Of the OpenAI API.")
@click.option("--field", "more", multiple=True, metavar="NAME=VALUE", callback=_fields, help="Another field (JSON).")
@click.option("--length", type=click.Choice(["mixed", *SENTENCES]), default="mixed", show_default=True)
@click.option("--texts", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A text on each line.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of made-up texts and arrivals.")
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), default=300.0, show_default=True)
@click.option("--json", "json_file", type=OutputFile(), metavar="FILE")
@click.option("--plot", "plot_file", type=OutputFile(), metavar="FILE", help="PNG.")
@server_options
def bench(address: str, api_key: str, **options: Any) -> None:
    """Measure a server with Fish's or OpenAI's API under load, as its listeners hear it."""
    if options["concurrency"] and options["rate"]:
        raise click.UsageError("give --concurrency or --rate, not both")
    if options["plot_file"]:
        report.load_pyplot()  # fail before the work, not after it
    results = asyncio.run(_bench(Server(address, api_key), options))
    summaries = [result.summary for result in results]
    if not any(summary.whole for summary in summaries):
        click.secho(f"FAILED: {report.verdict(summaries)}", fg="red", err=True)
    click.echo(f"{address}, {options['api']} API, {options['kind']}")
    Console().print(report.table(summaries))
    for warning in report.warnings(summaries):
        click.secho(f"warning: {warning}", fg="yellow", err=True)
    if options["json_file"]:
        report.write_json(results, {"server": address, "api": options["api"]}, options["json_file"])
    if options["plot_file"]:
        report.plot(results, address, options["plot_file"])
    if not any(summary.whole for summary in summaries):
        raise ServerError("no stream was whole")
    click.echo(report.verdict(summaries))


def _loads(options: dict[str, Any]) -> list[Load]:
    size = options["requests"], options["seconds"]
    if options["rate"]:
        return [Load(None, rate, *size) for rate in options["rate"]]
    return [Load(clients, None, *size) for clients in options["concurrency"] or [1]]


def _prompts(options: dict[str, Any], console: Console) -> Prompts:
    def warn() -> None:
        console.print("warning: texts repeat; a server that remembers them looks better than it is", style="yellow")

    return Prompts(_texts(options), warn)


def _texts(options: dict[str, Any]) -> Iterator[str]:
    if options["texts"] is None:
        return made_up(options["length"], options["seed"])
    texts = [line.strip() for line in options["texts"].read_text().splitlines() if line.strip()]
    if not texts:
        raise click.UsageError(f"{options['texts']} holds no text")
    return cycle(texts)


async def _bench(server: Server, options: dict[str, Any]) -> list[Result]:
    console = Console(stderr=True)
    prompts = _prompts(options, console)
    ask = {name: options[name] for name in ("voice", "model", "more", "time_limit")}
    results = []
    async with server.session() as session:
        speak = Speaker(server, session, DIALECTS[options["api"]], options["kind"], options["sample_rate"], **ask)
        for _ in range(options["warm_up"]):
            heard = await speak(prompts.next())
            if heard.error and not heard.status:
                raise ServerError(f"{server.address}: {heard.error}")
        with _progress(console) as progress:
            for load in _loads(options):
                outcome = await put(load, speak, prompts, options["seed"], _notice(progress, load))
                results.append(report.summarise(load, outcome, prompts.repeated))
    return results


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("{task.fields[state]}"), console=console)


def _notice(progress: Progress, load: Load) -> Notice:
    """Progress bar of one load: finished, running and failed requests."""
    total = load.requests if load.seconds is None else None
    task: TaskID = progress.add_task(load.name, total=total, state="")
    counts = {"under way": 0, "failed": 0}

    def notice(heard: Heard | None) -> None:
        counts["under way"] += 1 if heard is None else -1
        counts["failed"] += bool(heard and heard.error)
        state = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        progress.update(task, advance=heard is not None, state=state)

    return notice
