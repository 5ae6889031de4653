#!/usr/bin/env bash
# Start the process group: gateway, scheduler, ar_worker and vocoder_worker, under a supervisor. Stays in the foreground
# and prints one line with the address when all are ready; Ctrl-C or TERM drains and ends it. --help lists the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment requirements.lock
export PYTHONPATH=$root
exec "$root/.venv/bin/python" -m deploy.group.serve "$@"
