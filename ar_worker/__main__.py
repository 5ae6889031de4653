"""``python -m ar_worker --run-dir DIR``: the AR worker process."""

from __future__ import annotations

import logging
import sys

from ar_worker.cost_executor import CostExecutor
from ar_worker.executor import Executor
from ar_worker.worker import ArWorker
from common import device_faults, gpu, mps, process
from common.checkpoint import CheckpointError, load_model_config
from common.config import Config, threads_per_worker, worker_names
from common.transport import Context

log = logging.getLogger("ar_worker")


def make_executor(config: Config) -> Executor:
    """The executor that the configuration names. Only the ``torch`` executor imports torch."""
    settings = config.ar_worker
    if settings.executor == "cost":
        return CostExecutor(settings.slots, settings.cost)
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
        ),
    )


def main() -> int:
    this = process.start("ar_worker")
    settings = this.config.ar_worker
    mps.prepare(settings.active_thread_percentage, this.config.supervisor.mps_wait)
    try:
        with device_faults.watched(this):
            model = load_model_config(this.config.model_dir)
            executor = make_executor(this.config)
            log.info(
                "model loaded",
                extra={"memory_bytes": executor.memory_bytes, "slots": settings.slots, "frames": executor.frame_path},
            )
            executor.warm_up()
    except CheckpointError as error:
        log.error("can't load the model: %s", error)
        return 1
    mps.report(str(executor.device))
    gpu.watch(this.registry, str(executor.device))
    context = Context(this.keys, this.config.scheduler.worker_timeout)
    ArWorker(this, context, executor, model).run()
    context.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
