#!/usr/bin/env bash
# NVIDIA's MPS for the user who runs this, by which AR worker and vocoder worker share a GPU: start, stop or status.
# CUDA_MPS_PIPE_DIRECTORY (/tmp/nvidia-mps) and CUDA_MPS_LOG_DIRECTORY (/tmp/nvidia-log) say where; see
# docs/operations.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment requirements.lock
export PYTHONPATH=$root
exec "$root/.venv/bin/python" -m deploy.group.mps "$@"
