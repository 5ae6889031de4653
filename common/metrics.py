"""Metrics: one registry and one loopback port per process, and the buckets that several rooms share.

The port is ephemeral and written to ``<process>.metrics`` in the run directory, where the gateway finds it. Names carry
the prefix ``shoal_`` and base units.
"""

from __future__ import annotations

from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)

from common.files import write_atomically

FAST_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Steps, calls, gaps and lateness."""

WAIT_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0),
)
"""Queue wait and time to first audio."""

BATCH_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def new_registry() -> CollectorRegistry:
    """A registry with the usual collectors of the process itself."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def serve(registry: CollectorRegistry, run_dir: Path, process: str) -> None:
    """Serve the registry on a free loopback port, from a thread of its own, and write the port to the run directory."""
    server, _ = start_http_server(0, addr="127.0.0.1", registry=registry)
    write_atomically(run_dir / f"{process}.metrics", str(server.server_port).encode())
