"""Services in processes of their own, forked from one that has imported what they need: they start at once."""

from __future__ import annotations

import os
import sys
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

_context = get_context("forkserver")
_context.set_forkserver_preload(["swiftlet.main.commands.cli", "swiftlet.main.services.replicator"])


def spawn(arguments: list[str], log: Path) -> BaseProcess:
    """Start `swiftlet ARGUMENTS`, which appends to `log` and ends with this process."""
    process = _context.Process(target=_run, args=(arguments, log), daemon=True)
    process.start()
    return process


def _run(arguments: list[str], log: Path) -> None:
    from swiftlet.main.commands.cli import run, swiftlet

    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    # Its parent is the process that is forked, which ends with the tests.
    sys.exit(run(swiftlet, [*arguments, "--parent", str(os.getppid())]))
