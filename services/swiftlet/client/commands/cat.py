"""`swiftlet cat`: objects to standard output."""

from __future__ import annotations

import click

from swiftlet.client.commands.places import REMOTE, Remote
from swiftlet.client.commands.shared import Connection, connection_options, reported
from swiftlet.client.commands.transfers import write_out


@click.command(short_help="Write objects to standard output.")
@click.argument("places", nargs=-1, required=True, type=REMOTE)
@click.option("--version-id", help="A version of the object, as `ls --versions` shows it.")
@connection_options
def cat(connection: Connection, **options: object) -> None:
    """Write the objects PLACES to standard output, one after the other.

    Their bytes are compared with their ETags: if they differ, the command fails at the end of the object.
    """
    _cat(connection, **options)  # type: ignore[arg-type]


@reported
async def _cat(connection: Connection, places: tuple[Remote, ...], version_id: str | None) -> int:
    for place in places:
        if place.is_folder:
            raise click.UsageError(f"{place} is no object: swift://CONTAINER/NAME")
    async with connection.client() as client:
        for place in places:
            await write_out(client, place, version_id)
    return 0
