#!/usr/bin/env bash
# Write the lock files anew from pyproject.toml: requirements.lock (server), requirements-test.lock (server and tests).
# torch and Triton are left out: requirements-torch.lock and requirements-triton.lock pin them, and deploy/environment.sh
# says when they are installed.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/pip" install --quiet uv

# Packages marked "never" are the overrides of pyproject.toml; the CUDA libraries come with a CUDA build of torch
# (nvidia-ml-py is none of them).
compile() {
    "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate \
        --constraint requirements-torch.lock --no-emit-package torch --no-emit-package triton "$@" pyproject.toml |
        grep -Ev "sys_platform == 'never'|^(nvidia-[^m]|cuda-)"
}
compile --extra codecs >"$tools/requirements.lock"
compile --extra codecs --extra otel --extra test >"$tools/requirements-test.lock"
mv "$tools/requirements.lock" "$tools/requirements-test.lock" .
