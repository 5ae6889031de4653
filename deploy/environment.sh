# Sourced by run_all.sh and test.sh. ensure_environment LOCK makes .venv at the root from the lock file, once; a
# changed lock file makes it anew. The packages of the lock are installed without looking at their dependencies: the
# list is whole, and descript-audio-codec would otherwise bring its training half along.
#
# torch: where the Python at hand imports a CUDA build of it, that one is used (--system-site-packages);
# elsewhere the version of requirements-torch.lock is installed.
# PYTHON names the interpreter (default python3); pip's own settings (PIP_INDEX_URL, PIP_FIND_LINKS, ...) hold.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

has_cuda_torch() {
    "$1" -c 'import sys, torch; sys.exit(torch.version.cuda is None)' 2>/dev/null
}

ensure_environment() {
    local lock=$root/$1 venv=$root/.venv python=${PYTHON:-python3} stamp options=()
    stamp=$(cat "$root"/requirements*.lock | cksum)
    # The test lock holds all that the server's does.
    if [ -x "$venv/bin/python" ] && grep -qxE "($1|requirements-test.lock) $stamp" "$venv/shoal-locks" 2>/dev/null; then
        return
    fi
    if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
        echo "shoal: needs Python 3.11, 3.12 or 3.13; set PYTHON to one (now: $python)" >&2
        return 1
    fi
    echo "shoal: making the environment in $venv (once)" >&2
    if [ ! -x "$venv/bin/python" ]; then
        if has_cuda_torch "$python"; then options+=(--system-site-packages); fi
        "$python" -m venv ${options[@]+"${options[@]}"} "$venv"
    fi
    local pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
    if ! has_cuda_torch "$venv/bin/python"; then
        echo "shoal: 1 of 2: installing torch, the largest part by far" >&2
        "${pip[@]}" -c "$lock" -r "$root/requirements-torch.lock"
    fi
    echo "shoal: 2 of 2: installing $(grep -c == "$lock") more packages" >&2
    "${pip[@]}" --no-deps -r "$lock"
    # Tests of kernels need Triton; a CUDA build of torch has brought its own.
    if [ "$1" = requirements-test.lock ] && [ "$(uname -s)" = Linux ] && ! has_cuda_torch "$venv/bin/python"; then
        "${pip[@]}" --no-deps -r "$root/requirements-triton.lock"
    fi
    echo "$1 $stamp" >>"$venv/shoal-locks"
    build_native_frame
}

# A few seconds; without a compiler nothing. An image makes its environment before the code is there, and has none.
build_native_frame() {
    if [ -d "$root/ar_worker" ]; then (cd "$root" && .venv/bin/python -m ar_worker.native.build) >&2; fi
}
