"""``python -m ar_worker --run-dir DIR``: the AR worker process."""

from __future__ import annotations

import logging
import os
import sys

from ar_worker.cost_executor import CostExecutor
from ar_worker.executor import CAPTURE_EXIT_CODE, CaptureError, Executor, MemoryPlanError
from ar_worker.worker import ArWorker
from common import device_faults, gpu, mps, process
from common.checkpoint import CheckpointError, load_model_config
from common.config import Config, threads_per_worker, worker_names
from common.files import write_atomically
from common.process import Process
from common.transport import Context

log = logging.getLogger("ar_worker")


def make_executor(config: Config, graphs: bool) -> Executor:
    """The executor that the configuration names. Only the ``torch`` executor imports torch."""
    settings = config.ar_worker
    if settings.executor == "cost":
        return CostExecutor(settings.slots, settings.cost, settings.pages)
    from ar_worker.torch_executor import ExecutorSettings, TorchExecutor

    return TorchExecutor(
        config.model_dir,
        ExecutorSettings(
            device=settings.device,
            dtype=settings.dtype,
            slots=settings.slots,
            pages=settings.pages,
            page_size=settings.page_size,
            max_prefill_tokens=config.scheduler.prefill_budget,
            threads=threads_per_worker(settings.threads, len(worker_names(config))),
            deterministic=settings.deterministic,
            native=settings.native,
            frame_threads=settings.threads,
            graphs=settings.graphs and graphs,
            kv_memory_fraction=settings.kv_memory_fraction,
        ),
    )


def prepared(this: Process) -> Executor:
    """The executor, warm. A failed capture of graphs ends the process, and its next start does without them."""
    marker = this.run_dir / f"{this.name}.no-graphs"
    if marker.exists():
        log.warning("frames run without graphs: their capture failed", extra={"cause": marker.read_text()})
    executor = make_executor(this.config, not marker.exists())
    try:
        executor.warm_up()
    except CaptureError as error:
        write_atomically(marker, str(error).encode())
        log.critical("ends, to start again without graphs", exc_info=error)
        if device_faults.classify(error) is None:
            os._exit(CAPTURE_EXIT_CODE)  # an orderly end may hang where a capture has failed
        raise
    return executor


def main() -> int:
    this = process.start("ar_worker")
    settings = this.config.ar_worker
    mps.prepare(settings.active_thread_percentage, this.config.supervisor.mps_wait)
    try:
        with device_faults.watched(this):
            model = load_model_config(this.config.model_dir)
            executor = prepared(this)
            log.info(
                "model loaded",
                extra={"memory_bytes": executor.memory_bytes, "slots": settings.slots, "frames": executor.frame_path},
            )
    except (CheckpointError, MemoryPlanError) as error:
        log.error("can't load the model: %s", error)
        return 1
    mps.report(str(executor.device))
    gpu.watch(this.registry, str(executor.device))
    context = Context(this.curve_keys, this.config.scheduler.worker_timeout)
    ArWorker(this, context, executor, model).run()
    context.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
