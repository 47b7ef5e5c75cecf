"""`swiftlet rm`: objects, all that is below a prefix, containers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import click

from swiftlet.client.client import AsyncClient
from swiftlet.client.commands.places import REMOTE, Remote
from swiftlet.client.commands.shared import Connection, connection_options, reported
from swiftlet.client.commands.terminal import Bar
from swiftlet.client.commands.transfers import Transfer, run_transfers
from swiftlet.client.errors import NotFound
from swiftlet.client.progress import Progress


@click.command(short_help="Delete objects and containers.")
@click.argument("places", nargs=-1, required=True, type=REMOTE)
@click.option("-r", "--recursive", is_flag=True, help="Delete all that is below; of a container: it too.")
@click.option("--dry-run", is_flag=True, help="Write what would be deleted, and delete nothing.")
@click.option("--leave-segments", is_flag=True, help="Leave the segments of large objects.")
@click.option("-q", "--quiet", is_flag=True, help="Write errors only.")
@connection_options
def rm(connection: Connection, **options: object) -> None:
    """Delete the objects PLACES, large ones with their segments.

    \b
      swiftlet rm swift://photos/a.jpg
      swiftlet rm -r swift://photos/2026    2026 and all below 2026/
      swiftlet rm -r swift://photos         all objects, and the container
    """
    _remove(connection, **options)  # type: ignore[arg-type]


@reported
async def _remove(
    connection: Connection,
    places: tuple[Remote, ...],
    recursive: bool,
    dry_run: bool,
    leave_segments: bool,
    quiet: bool,
) -> int:
    for place in places:
        if not place.container:
            raise click.UsageError("swift:// alone is the account, which is not deleted: name a container or an object")
        if place.is_folder and not recursive:
            raise click.UsageError(f"{place} is no object: -r deletes all that is below it")
    async with connection.client() as client:
        names = _below(client, places) if recursive else _named(places)
        if dry_run:
            async for place, _ in names:
                click.echo(str(place))
            return 0
        transfers = _deletions(client, names, with_segments=not leave_segments)
        failures = await run_transfers(transfers, connection.concurrency, Bar(not quiet), is_verbose=not quiet)
        for place in places if recursive and not failures else ():
            if not place.name:
                await client.delete_container(place.container)
                if not quiet:
                    click.echo(str(place))
    return failures


async def _named(places: tuple[Remote, ...]) -> AsyncIterator[tuple[Remote, bool]]:
    """Yield objects that may have segments."""
    for place in places:
        yield place, True


async def _below(client: AsyncClient, places: tuple[Remote, ...]) -> AsyncIterator[tuple[Remote, bool]]:
    """Yield the objects at and below places, and whether they have segments."""
    for place in places:
        is_empty = True
        async for entry in client.list(place.container, place.name):
            if entry.name == place.name or entry.name.startswith(place.below):
                is_empty = False
                yield Remote(place.container, entry.name), entry.is_static_large
        if is_empty and place.name:
            raise NotFound(404, "there is nothing below it", f"DELETE {place}")


async def _deletions(
    client: AsyncClient, names: AsyncIterator[tuple[Remote, bool]], *, with_segments: bool
) -> AsyncIterator[Transfer]:
    async for place, may_have_segments in names:

        async def work(_: Progress, place: Remote = place, segments: bool = may_have_segments) -> None:
            await client.delete(place.container, place.name, with_segments=segments and with_segments)

        yield Transfer(str(place), 0, work)
