"""The `swiftlet` command. Imports of a subcommand are made when it runs, so that `--help` is quick."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from swiftlet import __version__
from swiftlet.client.commands import COMMANDS
from swiftlet.client.commands.lazy import LazyGroup
from swiftlet.errors import SwiftletError
from swiftlet.ring.model import RingError

_LATER: dict[str, tuple[str, str, str]] = {
    "advise": (
        "swiftlet.main.commands.advise.command",
        "advise",
        "Say which store a load needs, and what is wrong with one.",
    ),
    "bench": ("swiftlet.main.commands.bench", "bench", "Measure a store, and compare results."),
    "policy": ("swiftlet.main.commands.policy_command", "policy", "Look at storage policies, move containers."),
    "replicator": ("swiftlet.main.commands.replicator_command", "replicator", "Run the replicator of some devices."),
    "rdma": ("swiftlet.main.commands.rdma", "rdma", "Find out whether RDMA can be used here."),
    "ring": ("swiftlet.main.commands.ring", "ring", "Make, change and inspect rings."),
    "store": ("swiftlet.main.commands.store", "store", "Look at and mend the native store of a device."),
    "standalone": ("swiftlet.main.commands.standalone.command", "standalone", "Run a whole store on this machine."),
}
"""Subcommands in modules of their own, beside those of the client: module, attribute, line of help."""


@click.group(cls=LazyGroup, later={**COMMANDS, **_LATER}, context_settings={"help_option_names": ["-h", "--help"]})
def swiftlet() -> None:
    """An object store that speaks the OpenStack Swift API."""


def _service_command(service: str, description: str) -> None:
    @swiftlet.command(name=service, help=description, short_help=description)
    @click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="SWIFTLET_CONFIG",
        help="Settings file (YAML); see `swiftlet settings`.",
    )
    @click.option("--parent", type=int, hidden=True, help="End with this process.")
    def run(config: Path | None, parent: int | None) -> None:
        from swiftlet.main.commands.launch import launch

        raise click.exceptions.Exit(launch(service, config, parent))


_service_command("proxy", "Run the Swift API server.")
_service_command("object", "Run the object server of some devices.")
_service_command("container", "Run the account and container server of some devices.")
_service_command("metadata", "Run the metadata server, which tells clients where objects are.")


@swiftlet.command(short_help="Print a service's settings with defaults and explanations.")
@click.argument("service", type=click.Choice(["proxy", "object", "container", "metadata", "replicator"]))
def settings(service: str) -> None:
    """Print every setting of SERVICE as YAML: its default, its unit and what it is for."""
    from swiftlet.settings import SERVICES, render_reference

    click.echo(render_reference(SERVICES[service]), nl=False)


@swiftlet.command(short_help="Print the versions of swiftlet and what it runs on.")
def version() -> None:
    """Print the versions of swiftlet, its native module and Python."""
    click.echo(f"swiftlet {__version__}")
    click.echo(f"swiftlet-native {_native_version()}")
    click.echo(f"python {sys.version.split()[0]}")


def _native_version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("swiftlet-native")
    except PackageNotFoundError:
        return "not installed (run `make setup`)"


def run(command: click.Command, args: list[str] | None = None) -> int:
    """Run a click command; return its exit code: 1 for domain errors, 2 for wrong usage, 130 for Ctrl-C."""
    try:
        result = command.main(args=args, prog_name="swiftlet", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (SwiftletError, RingError) as error:
        click.echo(f"swiftlet: {error}", err=True)
        return 1
    return result if isinstance(result, int) else 0


def main() -> None:
    """Run the `swiftlet` command and exit."""
    sys.exit(run(swiftlet))
