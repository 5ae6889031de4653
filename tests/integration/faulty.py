"""A process group whose imagined devices break on demand: ``python -m tests.integration.faulty OPTIONS OF run_all.sh``.

A worker meets the error that is written in ``<its name>.fault`` in the run directory, once, in its next step or call.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from deploy.group import serve

THIS = "tests.integration.faulty"
CALLS = {"ar_worker": "launch", "vocoder_worker": "decode"}


def start_group() -> int:
    """What run_all.sh starts, but that supervisord starts the workers by way of this module."""
    genuine = serve.supervisor_config

    def redirected(config: Any) -> str:
        text = genuine(config)
        for role in CALLS:
            text = text.replace(f" -m {role} ", f" -m {THIS} {role} ")
        return text

    serve.supervisor_config = redirected
    return serve.main()


def run_worker(role: str) -> int:
    """The worker itself, with an executor that can break."""
    del sys.argv[1]
    fault = Path(option("--run-dir")) / f"{option('--name')}.fault"
    executor = import_module(f"{role}.cost_executor").CostExecutor
    genuine = getattr(executor, CALLS[role])

    def breaking(self: Any, *arguments: Any) -> Any:
        if fault.exists():
            text = fault.read_text()
            fault.unlink()
            raise RuntimeError(text)
        return genuine(self, *arguments)

    setattr(executor, CALLS[role], breaking)
    return int(import_module(f"{role}.__main__").main())


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1]) if sys.argv[1] in CALLS else start_group())
