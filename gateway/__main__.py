"""The gateway process."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import uvloop

from common import process as processes
from common.checkpoint import CheckpointError
from common.config import ConfigError
from common.files import write_atomically
from common.process import Process
from common.transport import Context
from gateway import model
from gateway.engine import Engine
from gateway.metrics import GatewayMetrics
from gateway.model import ServedModel
from gateway.server import Server
from gateway.services import Gateway

ADDRESS_FILE = "gateway.address"
ORPHAN_CHECK_SECONDS = 1.0

log = logging.getLogger("gateway")


def main() -> int:
    """Serve until asked to stop; the exit status."""
    process = processes.start("gateway")
    try:
        served = model.load(process.config.model_dir)
        return uvloop.run(_run(process, served))
    except CheckpointError as error:
        log.error("the checkpoint can't be used: %s", error)
    except (ConfigError, OSError) as error:
        log.error("can't start: %s", error)
    return 1


async def _run(process: Process, served: ServedModel) -> int:
    settings = process.config.gateway
    signals = _signals()
    context = Context()
    engine = Engine(process, context)
    try:
        gateway = Gateway(process.config, served, engine, GatewayMetrics(process.registry))
        server = Server(gateway)
        await server.start(settings.host, settings.port)
        write_atomically(process.run_dir / ADDRESS_FILE, server.address.encode())
        log.info("listening", extra={"address": server.address})
        try:
            await _serve(process, server, signals, settings.drain_timeout)
        finally:
            await server.close()
    finally:
        engine.close()
        context.close()
    log.info("stopped")
    return 0


def _signals() -> asyncio.Queue[signal.Signals]:
    """TERM and INT, as they come."""
    received: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, received.put_nowait, number)
    return received


async def _serve(process: Process, server: Server, signals: asyncio.Queue[signal.Signals], drain: float) -> None:
    """Until a signal and the drain after it, or a second signal, or until whoever started this process has died."""
    while True:
        if process.orphaned():
            log.warning("the parent process has gone")
            return
        try:
            async with asyncio.timeout(ORPHAN_CHECK_SECONDS):
                await signals.get()
                break
        except TimeoutError:
            continue
    log.info("draining")
    again = asyncio.create_task(signals.get())
    drained = asyncio.create_task(server.drain(drain))
    await asyncio.wait({again, drained}, return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    drained.cancel()


if __name__ == "__main__":
    sys.exit(main())
