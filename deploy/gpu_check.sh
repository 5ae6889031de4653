#!/usr/bin/env bash
# Measure a GPU against what is forecast of it; see docs/gpu.md. PYTHON names the interpreter (default python3).
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" -m deploy.gpu_check "$@"
