"""``shoal worker``: runs one worker for a scheduler on another machine.

It becomes the worker's own process: whoever started it (systemd, a container) watches it and starts it again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from common import command_line
from common import config as configuration
from common.checkpoint import CheckpointError, load_codec_config, load_model_config
from common.config import ROOT, Config, ConfigError
from common.files import make_private
from common.transport import load_curve_keys
from common.weight_files import check_weight_files
from deploy.group import serve

COMMAND = click.Command(
    None,
    help="Run one worker, for a scheduler on another machine. NAME is its name within the group, which no other worker "
    "has, and that of its key. OPTIONS are those of shoal serve, as far as they mean something to a worker.",
    params=[
        click.Argument(["role"], type=click.Choice(["ar_worker", "vocoder_worker"])),
        click.Argument(["name"]),
        click.Argument(["options"], nargs=-1, type=click.UNPROCESSED),
    ],
    context_settings={"ignore_unknown_options": True},
)


def parse(arguments: Sequence[str], program: str) -> tuple[str, str, Config]:
    """Parse role, name and configuration of the worker.

    Raises:
        ConfigError: an option can't be used, or the configuration names no scheduler that can be reached from here.
    """
    chosen = command_line.parse(COMMAND, program, arguments)
    role, name = chosen["role"], chosen["name"]
    config = serve.parse(chosen["options"], program)
    if not config.transport.scheduler:
        raise ConfigError("transport.scheduler: required, the address at which the scheduler listens")
    if role == "vocoder_worker" and not config.transport.audio_host:
        raise ConfigError("transport.audio_host: required, the address at which gateways reach this machine")
    load_curve_keys(config, name)
    return role, name, config


def main(arguments: Sequence[str], program: str = "shoal worker") -> int:
    """Become the worker of a command line; returns the exit status on failure."""
    try:
        role, name, config = parse(arguments, program)
        load_model_config(config.model_dir)
        load_codec_config(config.model_dir)
        settings = config.ar_worker if role == "ar_worker" else config.vocoder_worker
        if settings.executor == "torch":
            check_weight_files(config.model_dir)
        make_private(config.run_path)
    except (ConfigError, CheckpointError, OSError) as error:
        print(f"shoal: {error}", file=sys.stderr)
        return 2
    configuration.save(config)
    os.chdir(ROOT)
    command = [sys.executable, "-m", role, "--run-dir", str(config.run_path), "--name", name]
    os.execv(sys.executable, command)
