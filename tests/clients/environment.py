"""The clients' environments: Python's in ``.venv``, Node's in ``node/node_modules``, both beside this file.

    python -m tests.clients.environment        # make all of them now; the tests make what they need

They are apart from the server's own environment, so that each side has the versions it asks for. Packages come from
the registries that pip and npm are set up for.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).parent
VENV = HERE / ".venv"
NODE = HERE / "node"
INSTALL_SECONDS = 240  # less than a test may take
# Lists of requirements, in order.
PYTHON_GROUPS = {"sdks": ("sdks",), "agents": ("sdks", "agents"), "fuzz": ("fuzz",), "judge": ("judge",)}
GROUPS = (*PYTHON_GROUPS, "node")


class UnavailableError(Exception):
    """A group of clients can't be installed here."""


def interpreter(group: str) -> Path:
    """What runs the clients of a group, which is installed first if need be.

    Raises:
        UnavailableError: with the reason.
    """
    result = _installed(group)
    if isinstance(result, UnavailableError):
        raise result
    return result


@functools.cache
def _installed(group: str) -> Path | UnavailableError:
    """What fails once is not tried again for every test."""
    try:
        return _node() if group == "node" else _python(group)
    except UnavailableError as error:
        return error


def _python(group: str) -> Path:
    python = VENV / "bin" / "python"
    if not python.exists():
        _run(_python312(), "-m", "venv", str(VENV))
    for name in PYTHON_GROUPS[group]:
        requirements = HERE / "requirements" / f"{name}.txt"
        if _is_new(VENV / name, requirements):
            pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
            _run(*pip, "-r", str(requirements))
            _note(VENV / name, requirements)
    return python


def _node() -> Path:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise UnavailableError("there is no node or no npm")
    lock, stamp = NODE / "package-lock.json", NODE / "node_modules" / "installed"
    if _is_new(stamp, lock):
        _run(npm, "ci", "--no-audit", "--no-fund", directory=NODE)
        _note(stamp, lock)
    return Path(node)


def _python312() -> str:
    """Python 3.12, which some clients ask for, or the one that runs this."""
    ours = sorted(Path.home().glob(".pyenv/versions/3.12.*/bin/python3.12"))
    for python in (*map(str, reversed(ours)), shutil.which("python3.12")):
        if (
            python
            and subprocess.run([python, "-c", "import ensurepip, ssl, venv"], capture_output=True).returncode == 0
        ):
            return python
    return sys.executable


def _is_new(stamp: Path, requirements: Path) -> bool:
    return not stamp.exists() or stamp.read_text() != _checksum(requirements)


def _note(stamp: Path, requirements: Path) -> None:
    stamp.write_text(_checksum(requirements))


def _checksum(path: Path) -> str:
    return str(zlib.crc32(path.read_bytes()))


def _run(*command: str, directory: Path = HERE) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        subprocess.run(
            command, cwd=directory, env=environment, timeout=INSTALL_SECONDS, check=True, capture_output=True, text=True
        )
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"{' '.join(command[:4])} … failed: {error.stderr.strip()[-500:]}") from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{' '.join(command[:4])} … took more than {INSTALL_SECONDS} s") from None


def main() -> None:
    for group in GROUPS:
        print(f"{group}: {interpreter(group)}")


if __name__ == "__main__":
    main()
