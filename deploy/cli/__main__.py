"""``python -m deploy.cli``."""

from __future__ import annotations

from deploy.cli import main

main(prog_name="shoal")
