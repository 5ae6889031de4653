"""The long form of the chaos suite: ``python -m tests.chaos --faults 200 --seed 1``."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from tests.chaos.run import chaos


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=6)
    options = parser.parse_args()
    began = time.monotonic()
    report = chaos(options.faults, options.seed, options.clients, partial(print, flush=True))
    print(report, f"seconds: {time.monotonic() - began:.0f}", sep="\n")
    return 1 if report.tally.faulty or report.held else 0


if __name__ == "__main__":
    sys.exit(main())
