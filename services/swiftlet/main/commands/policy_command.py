"""`swiftlet policy`: what uses a storage policy, and moving containers to another one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from swiftlet.api.http.reserved import main_container
from swiftlet.main.commands.policy_move_command import move
from swiftlet.main.commands.policy_usage import Usage, find
from swiftlet.settings import ProxySettings, load_settings
from swiftlet.transport.http_policies import PolicyContainer
from swiftlet.transport.listing_wire import id_from_text, id_to_wire
from swiftlet.transport.wire import WireError
from swiftlet.web.logs import configure_logging

DEFAULT_LIMIT = 100
"""Containers that `swiftlet policy usage` lists unless it is told how many."""
MAX_LIMIT = 10_000
"""Containers that `swiftlet policy usage` lists at most; the rest begins where the list ends."""


@click.group()
def policy() -> None:
    """Look at storage policies, and move containers between them."""


policy.add_command(move)


@policy.command()
@click.argument("name")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="SWIFTLET_CONFIG",
    help="Settings file (YAML) of a proxy; see `swiftlet settings`.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_LIMIT),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Containers to list at most.",
)
@click.option("--after", help="Begin behind this place, which a list that was cut short ends with.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def usage(name: str, config: Path | None, limit: int, after: str | None, as_json: bool) -> None:
    """List the containers of the policy NAME: account, container, objects, bytes.

    Asks all container servers. Ends with 1 when so many of them can't be asked that containers may be missing; with
    --json it says so in `whole` and ends with 0.
    """
    settings = load_settings(ProxySettings, config)
    configure_logging("policy", "warning", settings.log.format)
    try:
        begin = None if after is None else id_from_text(after)
    except WireError as error:
        raise click.BadParameter(
            f"{error}; give the value that the previous list ended with", param_hint="--after"
        ) from error
    found = asyncio.run(find(settings, name, begin, limit))
    if as_json:
        click.echo(json.dumps(fields_of(found)))
    else:
        _print(found)
    raise click.exceptions.Exit(0 if found.is_whole or as_json else 1)


def fields_of(found: Usage) -> dict[str, Any]:
    """Return the list in the form of the command's JSON."""
    return {
        "containers": [
            {"account": one.name.account, "container": shown(one), "objects": one.objects, "bytes": one.bytes}
            for one in found.containers
        ],
        "more": None if found.more is None else id_to_wire(found.more),
        "unheard": found.unheard,
        "whole": found.is_whole,
    }


def shown(container: PolicyContainer) -> str:
    """Return a container's name; the name of a hidden one is explained by the container that it belongs to."""
    name = container.name.container or ""
    return f"versions of {main_container(name)}" if name.startswith("\0") else name


def _print(found: Usage) -> None:
    for one in found.containers:
        click.echo(f"{one.name.account}\t{shown(one)}\t{one.objects}\t{one.bytes}")
    if not found.containers:
        click.echo("no container uses the policy", err=True)
    for device, problem in found.unheard.items():
        click.echo(f"device {device} could not be asked: {problem}", err=True)
    if not found.is_whole:
        click.echo(
            "error: the list may be incomplete: a container may have all its replicas on devices that "
            "could not be asked",
            err=True,
        )
    if found.more is not None:
        click.echo(f"there are more containers; --after {id_to_wire(found.more)} lists them", err=True)
