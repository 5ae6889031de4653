"""``python -m deploy.group.prepare OPTIONS``: prepares a run directory for processes that start one by one (systemd).

The options are those of run_all.sh; ``--run-dir`` must be among them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from common.checkpoint import CheckpointError
from common.config import ConfigError
from deploy.group.serve import check, parse, prepare


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the configuration and write it to the run directory; returns the exit status."""
    try:
        config = parse(arguments, "deploy.group.prepare")
        check(config)
        prepare(config)
    except (ConfigError, CheckpointError, ValueError, OSError) as error:
        print(f"shoal: {error}", file=sys.stderr)
        return 2
    print(f"shoal: prepared {config.run_path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
