#!/usr/bin/env bash
# Make the environment with the test extras, and run linter, type checker and tests. Arguments go to pytest.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment requirements-test.lock
cd "$root"
export PYTHONPATH=$root
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
exec .venv/bin/python -m pytest "$@"
