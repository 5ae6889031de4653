"""``python -m vocoder_worker --run-dir DIR``: the vocoder worker process."""

from __future__ import annotations

import logging
import sys

from common import device_faults, gpu, mps, process
from common.checkpoint import CheckpointError, load_codec_config
from common.config import Config, threads_per_worker, worker_names
from common.transport import Context
from vocoder_worker.cost_executor import CostExecutor
from vocoder_worker.executor import Executor
from vocoder_worker.worker import VocoderWorker

log = logging.getLogger("vocoder_worker")


def make_executor(config: Config) -> Executor:
    """Build the configured executor. torch is imported only if it is needed."""
    settings = config.vocoder_worker
    if settings.executor == "cost":
        return CostExecutor(load_codec_config(config.model_dir), settings.slots, settings.cost)
    from vocoder_worker.torch_executor import ExecutorSettings, TorchExecutor

    threads = threads_per_worker(settings.threads, len(worker_names(config)))
    return TorchExecutor(config.model_dir, ExecutorSettings(settings.device, settings.slots, threads))


def main() -> int:
    this = process.start("vocoder_worker")
    mps.prepare(this.config.vocoder_worker.active_thread_percentage, this.config.supervisor.mps_wait)
    try:
        with device_faults.watched(this):
            executor = make_executor(this.config)
            memory = {"weight_bytes": executor.weight_bytes, "state_bytes": executor.state_bytes}
            log.info("codec loaded", extra=memory | {"slots": executor.slots})
            executor.warm_up()
    except CheckpointError as error:
        log.error("can't load the codec: %s", error)
        return 1
    mps.report(str(executor.device))
    gpu.watch(this.registry, str(executor.device))
    context = Context(this.curve_keys, this.config.scheduler.worker_timeout)
    VocoderWorker(this, context, executor).run()
    context.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
