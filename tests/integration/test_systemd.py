"""The systemd units: verified, ordered as a group starts and stops, and what they run really talks to systemd."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from common.config import resolve
from deploy.group.healthcheck import main as answers
from deploy.group.supervision import processes
from tests.integration.client import gather, speak
from tests.integration.group import eventually
from tests.integration.units import Service, command, install

SERVICES = ("vocoder-worker", "ar-worker", "scheduler", "gateway")
SETTINGS = """
[gateway]
port = 0
[ar_worker]
executor = "cost"
[ar_worker.cost]
base_ms = {step_ms}
[vocoder_worker]
executor = "cost"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("installed")


@pytest.fixture(scope="module")
def units(installed: Path) -> dict[str, ConfigParser]:
    return install(installed)


@pytest.mark.slow  # systemd-analyze is needed
def test_systemd_finds_no_fault_with_the_units(installed: Path, units: dict[str, ConfigParser]) -> None:
    assert shutil.which("systemd-analyze"), "systemd-analyze is needed (Debian: systemd)"
    paths = sorted(map(str, (installed / "etc" / "systemd" / "system").iterdir()))
    reply = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True, timeout=60
    )
    assert (reply.returncode, reply.stdout, reply.stderr) == (0, "", "")


def test_every_process_has_a_unit_that_restarts_and_watches_it(units: dict[str, ConfigParser]) -> None:
    target = units["shoal"]["Unit"]["Wants"].split()
    for name in SERVICES:
        service = units[name]["Service"]
        assert f"shoal-{name}.service" in target
        assert units[name]["Unit"]["PartOf"] == "shoal.target"
        assert (service["Type"], service["Restart"], service["KillMode"]) == ("notify", "always", "mixed")
        assert float(service["WatchdogSec"]) > 0
        assert service["User"] == "shoal"


def test_units_start_and_so_stop_in_the_order_of_the_supervisor(units: dict[str, ConfigParser]) -> None:
    roles = [role.replace("_", "-") for _, role in processes(resolve())]
    assert tuple(roles) == SERVICES
    for earlier, later in itertools.pairwise(roles):
        assert f"shoal-{earlier}.service" in units[later]["Unit"]["After"].split()
    for role in roles:
        assert "shoal-prepare.service" in units[role]["Unit"]["After"].split()


def test_systemd_waits_longer_than_a_process_may_take(units: dict[str, ConfigParser]) -> None:
    config = resolve()
    assert float(units["gateway"]["Service"]["TimeoutStopSec"]) > config.gateway.drain_timeout
    for name in ("scheduler", "ar-worker", "vocoder-worker"):
        assert float(units[name]["Service"]["TimeoutStopSec"]) > config.scheduler.drain_timeout


@contextlib.contextmanager
def started(
    installed: Path, units: dict[str, ConfigParser], step_ms: float, watchdog: float
) -> Iterator[tuple[Path, dict[str, Service]]]:
    """The run directory, and the four processes after each has said that it is ready."""
    (installed / "etc" / "shoal" / "shoal.toml").write_text(SETTINGS.format(step_ms=step_ms))
    with tempfile.TemporaryDirectory(prefix="shoal-test-") as directory, contextlib.ExitStack() as stack:
        place = Path(directory)
        paths = {"/etc/shoal": installed / "etc" / "shoal", "/run/shoal": place, "/var/lib/shoal": place / "data"}
        prepare = units["prepare"]["Service"]
        subprocess.run(command(units["prepare"], paths), check=True, cwd=prepare["WorkingDirectory"], timeout=60)
        services = {}
        for name in SERVICES:
            services[name] = Service(units[name], paths, place / f"{name}.notify", watchdog)
            stack.callback(services[name].close)
            services[name].wait_for("READY=1")
        eventually(lambda: answers(f"{base(place)}/readyz") == 0, 30)  # each is registered with the scheduler
        yield place, services


def base(place: Path) -> str:
    return "http://" + (place / "gateway.address").read_text().strip()


def test_what_the_units_run_says_that_it_is_ready_alive_and_stopping(
    installed: Path, units: dict[str, ConfigParser]
) -> None:
    with started(installed, units, step_ms=2.0, watchdog=4.0) as (place, services):
        (reply,) = gather(speak(base(place), "Under systemd.", max_new_tokens=10, streaming=False))
        assert reply.status == 200
        for service in services.values():
            service.wait_for("WATCHDOG=1", 10)
        for name in reversed(SERVICES):
            assert services[name].stop() == 0
            services[name].wait_for("STOPPING=1", 5)


@pytest.mark.slow
def test_a_worker_that_hangs_in_a_step_does_not_say_that_it_is_alive(
    installed: Path, units: dict[str, ConfigParser]
) -> None:
    with started(installed, units, step_ms=20_000.0, watchdog=2.0) as (place, services):

        async def begin() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(speak(base(place), "A step without end.", max_new_tokens=10), 3.0)

        asyncio.run(begin())
        services["ar-worker"].pings(2.5)  # the last one is of before half the limit
        assert services["ar-worker"].pings(3.0) == 0
        assert services["vocoder-worker"].pings(3.0) > 0
