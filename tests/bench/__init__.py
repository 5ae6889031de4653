"""Benchmarks: performance measurements of the running group and of its parts.

They need the packages of the test lock (requirements-test.lock), which ``deploy/test.sh`` installs into ``.venv``.
"""

from __future__ import annotations

import importlib.util
import sys

PACKAGES = ("httptools", "matplotlib", "psutil")

if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
    sys.exit(
        f"tests.bench needs {', '.join(missing)}: install the packages of the test lock, by deploy/test.sh or\n"
        "    .venv/bin/pip install --no-deps -r requirements-test.lock"
    )
