"""The gateway process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

import msgspec
import uvloop

from common import notify
from common import process as processes
from common.background import background
from common.checkpoint import CheckpointError
from common.config import ConfigError
from common.files import write_atomically
from common.process import Process
from common.transport import Context
from gateway.checkpoint import served_model
from gateway.checkpoint.served_model import ServedModel
from gateway.engine.client import Engine
from gateway.http.connections import allow_files
from gateway.observe import otel_export
from gateway.observe.metrics import GatewayMetrics
from gateway.server import Server
from gateway.services import Gateway
from gateway.speech.planner import engine_bounds

ADDRESS_FILE = "gateway.address"
ADMIN_ADDRESS_FILE = "gateway.admin_address"
TARGETS_FILE = "targets.json"  # the operators' address, as Prometheus reads it
ORPHAN_CHECK_SECONDS = 1.0
AT_ONCE_SECONDS = 1.0
WATCHDOG_CHECK_SECONDS = 0.5

log = logging.getLogger("gateway")


def main() -> int:
    """Serve until asked to stop; returns the exit status."""
    process = processes.start("gateway")
    # A device that waits for its next step holds up every stream; the gateway has each stream's reserve to spend.
    os.nice(process.config.gateway.nice)
    allow_files(process.config.gateway.max_connections)
    try:
        served = served_model.load(process.config.model_dir)
        return uvloop.run(_run(process, served))
    except CheckpointError as error:
        log.error("the checkpoint can't be used: %s", error)
    except (ConfigError, OSError) as error:
        log.error("can't start: %s", error)
    return 1


async def _run(process: Process, served: ServedModel) -> int:
    settings = process.config.gateway
    signals = _signals()
    context = Context(process.curve_keys, process.config.scheduler.worker_timeout)
    engine = Engine(process, context)
    try:
        bounds = engine_bounds(process.config, served)
        gateway = Gateway(process.config, served, engine, GatewayMetrics(process.registry), bounds)
        gateway.metrics.watch(engine, gateway.sockets)
        server = Server(gateway)
        await server.start(settings.host, settings.port, settings.admin_host, settings.admin_port)
        write_atomically(process.run_dir / ADMIN_ADDRESS_FILE, server.admin_address.encode())
        write_atomically(process.run_dir / TARGETS_FILE, msgspec.json.encode([{"targets": [server.admin_address]}]))
        write_atomically(process.run_dir / ADDRESS_FILE, server.address.encode())
        log.info("listening", extra={"address": server.address, "admin_address": server.admin_address})
        processes.begin_to_serve()
        pings = background(_ping_watchdog(), "watchdog pings")
        async with otel_export.exporting(gateway.timelines, gateway.run_dir):
            at_once = await _serve(process, server, signals)
            # At once, clients that are slow to hear of it are not waited for.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.close(), AT_ONCE_SECONDS if at_once else None)
        pings.cancel()
    finally:
        engine.close()
        context.close()
    log.info("stopped")
    return 0


def _signals() -> asyncio.Queue[signal.Signals]:
    """Queue of the TERM and INT signals received."""
    received: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, received.put_nowait, number)
    return received


async def _ping_watchdog() -> None:
    watchdog = notify.Watchdog()
    while True:
        watchdog.ping()
        await asyncio.sleep(WATCHDOG_CHECK_SECONDS)


async def _serve(process: Process, server: Server, signals: asyncio.Queue[signal.Signals]) -> bool:
    """Return after a signal and its drain, after a second signal, or when the parent process has died.

    Whether the rest is to be done at once.
    """
    while True:
        if process.orphaned():
            log.warning("the parent process has gone")
            return True
        try:
            async with asyncio.timeout(ORPHAN_CHECK_SECONDS):
                await signals.get()
                break
        except TimeoutError:
            continue
    log.info("draining")
    notify.tell(notify.STOPPING)
    again = asyncio.create_task(signals.get())
    settings = process.config.gateway
    drained = background(server.drain(settings.drain_timeout, settings.drain_grace), "drain")
    await asyncio.wait({again, drained}, return_when=asyncio.FIRST_COMPLETED)
    at_once = again.done()
    again.cancel()
    drained.cancel()
    return at_once


if __name__ == "__main__":
    sys.exit(main())
