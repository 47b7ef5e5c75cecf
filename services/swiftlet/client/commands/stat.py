"""`swiftlet stat`: what the store knows of an object, a container or the account."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from swiftlet.client.client import AsyncClient
from swiftlet.client.commands.places import REMOTE, Remote
from swiftlet.client.commands.shared import Connection, connection_options, reported

_OF_THE_ANSWER = frozenset(
    {"date", "connection", "x-trans-id", "x-openstack-request-id", "server", "vary", "accept-ranges", "keep-alive"}
)


@click.command(short_help="Show what the store knows of an object, a container or the account.")
@click.argument("places", nargs=-1, type=REMOTE)
@click.option("--version-id", help="A version of the object, as `ls --versions` shows it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line.")
@connection_options
def stat(connection: Connection, **options: object) -> None:
    """Show what the store knows of PLACES: objects, containers, or without one the account."""
    _stat(connection, **options)  # type: ignore[arg-type]


@reported
async def _stat(connection: Connection, places: tuple[Remote, ...], version_id: str | None, as_json: bool) -> int:
    async with connection.client() as client:
        for number, place in enumerate(places or (Remote(),)):
            known = await _headers(client, place, version_id)
            shown = {name: known[name] for name in sorted(known.keys() - _OF_THE_ANSWER)}
            if as_json:
                click.echo(json.dumps({"place": str(place), **shown}, ensure_ascii=False))
                continue
            if number:
                click.echo()
            if len(places) > 1:
                click.echo(f"{place}:")
            width = max(map(len, shown), default=0)
            for name, value in shown.items():
                click.echo(f"{name:>{width}}: {value}")
    return 0


async def _headers(client: AsyncClient, place: Remote, version_id: str | None) -> Mapping[str, str]:
    if place.name:
        return (await client.head(place.container, place.name, version_id=version_id)).headers
    if place.container:
        return (await client.container(place.container)).headers
    return (await client.account()).headers
