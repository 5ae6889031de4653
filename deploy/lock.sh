#!/usr/bin/env bash
# Write the lock files anew from pyproject.toml: requirements.lock (server), requirements-test.lock (server and tests).
# torch is left out: requirements-torch.lock pins it, and deploy/environment.sh says when it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/pip" install --quiet uv

# Packages marked "never" are the overrides of pyproject.toml; the CUDA libraries come with a CUDA build of torch.
compile() {
    "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate \
        --constraint requirements-torch.lock --no-emit-package torch --no-emit-package triton "$@" pyproject.toml |
        grep -Ev "sys_platform == 'never'|^(nvidia|cuda)-"
}
compile --extra codecs >"$tools/requirements.lock"
compile --extra codecs --extra test >"$tools/requirements-test.lock"
mv "$tools/requirements.lock" "$tools/requirements-test.lock" .
