"""``python -m scheduler --run-dir DIR``: the scheduler process."""

from __future__ import annotations

from common import process
from common.transport import Context
from scheduler.shell import Shell

if __name__ == "__main__":
    context = Context()
    Shell(process.start("scheduler"), context).run()
    context.close()
