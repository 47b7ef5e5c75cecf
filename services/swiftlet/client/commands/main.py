"""The `swiftlet` command of the client's own wheel, where there are no services to start."""

from __future__ import annotations

import sys

import click

from swiftlet.client.commands import COMMANDS
from swiftlet.client.commands.lazy import LazyGroup


@click.group(cls=LazyGroup, later=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="swiftlet-client")
def swiftlet() -> None:
    """Use a store that speaks the OpenStack Swift API."""


def run(args: list[str] | None = None) -> int:
    """Run a command; return its exit code."""
    try:
        result = swiftlet.main(args=args, prog_name="swiftlet", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    return result if isinstance(result, int) else 0


def main() -> None:
    """Run the `swiftlet` command and exit."""
    sys.exit(run())
