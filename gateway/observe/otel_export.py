"""OpenTelemetry export: spans of speech requests, made from their timelines after their end.

Needs the extra ``otel``, and is configured by OpenTelemetry's own variables: it is on where an OTLP endpoint is named
(``OTEL_EXPORTER_OTLP_ENDPOINT``) or ``OTEL_TRACES_EXPORTER`` is ``otlp``. Elsewhere nothing of it is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from common.background import background
from common.timeline import NOTHING
from gateway.observe import scheduler_records
from gateway.observe.timeline import Timelines

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from gateway.observe.otel_spans import SpanMaker

INTERVAL = 2.0  # seconds between looks for requests that have ended
CLOSE_SECONDS = 3.0  # for the last spans to leave

log = logging.getLogger(__name__)


def configured(environment: Mapping[str, str]) -> bool:
    """Return whether the environment asks for spans."""
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter not in ("", "otlp"):
        return False
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return bool(exporter) or any(environment.get(name) for name in endpoints)


@contextlib.asynccontextmanager
async def exporting(timelines: Timelines, run_dir: Path, exporter: SpanExporter | None = None) -> AsyncIterator[None]:
    """Export spans of finished requests while the context lasts: by OTLP, per the environment, or to ``exporter``."""
    maker = _make(exporter) if exporter is not None or configured(os.environ) else None
    if maker is None:
        yield
        return
    spans = Spans(timelines, run_dir, maker)
    task = background(spans.run(), "OpenTelemetry export")
    try:
        yield
    finally:
        spans.stop()
        await task
        # An exporter may try for long to reach its collector.
        closing = threading.Thread(target=maker.close, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)


class Spans:
    """Collects finished requests periodically and makes their spans in a thread."""

    def __init__(self, timelines: Timelines, run_dir: Path, maker: SpanMaker) -> None:
        self._timelines, self._run_dir, self._maker = timelines, run_dir, maker
        self._seen = timelines.ended
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Run until :meth:`stop`, and export once more then."""
        while not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), INTERVAL)
            try:
                await self._export()
            except Exception:  # these are lost, and the next ones may do better
                log.exception("no spans were made of the requests that have ended")

    def stop(self) -> None:
        self._stopped.set()

    async def _export(self) -> None:
        """Make spans of all requests that ended since the last export."""
        count, self._seen = self._timelines.ended - self._seen, self._timelines.ended
        ended = self._timelines.last(count)
        if count > len(ended):
            log.warning(
                "requests ended faster than spans are made; see debug.requests", extra={"lost": count - len(ended)}
            )
        if not ended:
            return
        since, until = min(one.received for one in ended), max(one.until for one in ended)
        recent = await scheduler_records.ask(self._run_dir, since, until, work=False) or NOTHING
        await asyncio.to_thread(self._maker.make, ended, recent)


def _make(exporter: SpanExporter | None) -> SpanMaker | None:
    try:
        from gateway.observe.otel_spans import SpanMaker
    except ImportError as error:
        log.error("OTEL_* asks for spans, which need the extra 'otel': %s", error)
        return None
    return SpanMaker(exporter)
