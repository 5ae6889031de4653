"""``python -m scheduler --run-dir DIR``: the scheduler process."""

from __future__ import annotations

from common import process
from common.transport import Context
from scheduler.shell import Shell

if __name__ == "__main__":
    this = process.start("scheduler")
    context = Context(this.curve_keys, this.config.scheduler.worker_timeout)
    Shell(this, context).run()
    context.close()
