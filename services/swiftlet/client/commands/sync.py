"""`swiftlet sync`: a prefix becomes equal to a folder, or a folder to a prefix.

Two are equal when their sizes are and the file has the object's ETag: its MD5 or XXH3-128, or for a large object those
of its segments. Files are read for that, as fast as a processor can hash: what would be saved by believing times of
change is not worth a file that differs unseen. What the target has and the source lacks is deleted only with --delete,
after everything else, and only if nothing failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import click

from swiftlet.client.bodies import CHUNK, local_errors
from swiftlet.client.client import AsyncClient
from swiftlet.client.commands.places import PLACE, Local, Place, Remote
from swiftlet.client.commands.shared import Connection, connection_options, reported
from swiftlet.client.commands.terminal import Bar
from swiftlet.client.commands.transfers import Choices, Transfer, download_below, run_transfers, upload
from swiftlet.client.commands.trees import LocalFile, files_below, name_for, objects_below
from swiftlet.client.concurrency import run_each
from swiftlet.client.digests import digest_for
from swiftlet.client.errors import ClientError, LocalError, NotFound
from swiftlet.client.progress import Progress
from swiftlet.client.values import Entry


@click.command(short_help="Make a prefix equal to a folder, or a folder equal to a prefix.")
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@click.option("--delete", is_flag=True, help="Delete what the target has and the source lacks.")
@click.option("--dry-run", is_flag=True, help="Write what would be done, and do nothing.")
@click.option("--create", is_flag=True, help="Make the container if there is none.")
@click.option("-q", "--quiet", is_flag=True, help="Write errors only.")
@connection_options
def sync(connection: Connection, **options: object) -> None:
    """Copy from SOURCE to TARGET what differs; one of them is a folder, the other one is in the store.

    \b
      swiftlet sync folder swift://photos/2026
      swiftlet sync --delete swift://photos/2026 folder
    """
    _sync(connection, **options)  # type: ignore[arg-type]


@reported
async def _sync(
    connection: Connection, source: Place, target: Place, delete: bool, dry_run: bool, create: bool, quiet: bool
) -> int:
    if isinstance(source, Remote) == isinstance(target, Remote):
        raise click.UsageError("one side is a folder, the other one is in the store: swift://CONTAINER/PREFIX")
    remote = source if isinstance(source, Remote) else target
    local = target if isinstance(source, Remote) else source
    assert isinstance(remote, Remote)
    assert isinstance(local, Local)
    if not remote.container:
        raise click.UsageError("swift:// alone names no container: swift://CONTAINER/PREFIX")
    async with connection.client() as client:
        if create and remote is target and not dry_run:
            await client.create_container(remote.container)
        objects = await _objects(client, remote, is_target=remote is target, may_be_missing=dry_run and create)
        files = _files(local, must_exist=local is source)
        wanted, there = (list(files), set(objects)) if remote is target else (list(objects), set(files))

        def change(name: str) -> Transfer:
            if remote is target:
                place = Remote(remote.container, name_for(remote.below, name))
                return upload(client, files[name].path, place, files[name].size, files[name].mtime_ns, Choices())
            entry = objects[name]
            return download_below(client, Remote(remote.container, entry.name), local.path, name, entry.size)

        async def is_same(name: str) -> bool:
            return await _is_same(client, remote.container, files.get(name), objects.get(name))

        async def changes() -> AsyncIterator[Transfer]:
            async for name, result in run_each(wanted, is_same, connection.concurrency):
                if isinstance(result, ClientError):
                    raise result
                if not result:
                    yield change(name)

        surplus = [
            _removal(client, remote, objects[name]) if remote is target else _unlinking(files[name])
            for name in sorted(there - set(wanted))
            if delete
        ]
        if dry_run:
            for transfer in [*[one async for one in changes()], *surplus]:
                click.echo(transfer.what)
            return 0
        failures = await run_transfers(changes(), connection.concurrency, Bar(not quiet), is_verbose=not quiet)
        if failures and surplus:
            raise LocalError("nothing was deleted, as not everything was copied")
        failures += await run_transfers(surplus, connection.concurrency, Bar(not quiet), is_verbose=not quiet)
    return failures


async def _objects(client: AsyncClient, place: Remote, *, is_target: bool, may_be_missing: bool) -> dict[str, Entry]:
    try:
        return {relative: entry async for relative, entry in objects_below(client, place)}
    except NotFound as error:
        if not is_target:
            raise
        if may_be_missing:
            return {}
        raise LocalError(f"there is no container {place.container}; --create makes it") from error


def _files(place: Local, *, must_exist: bool) -> dict[str, LocalFile]:
    if not place.path.is_dir():
        if must_exist or place.path.exists():
            raise LocalError(f"{place} is no folder")
        return {}
    return {file.relative: file for file in files_below(place.path)}


def _removal(client: AsyncClient, place: Remote, entry: Entry) -> Transfer:
    async def work(_: Progress) -> None:
        await client.delete(place.container, entry.name, with_segments=entry.is_static_large)

    return Transfer(f"delete {Remote(place.container, entry.name)}", 0, work)


def _unlinking(file: LocalFile) -> Transfer:
    async def work(_: Progress) -> None:
        with local_errors(file.path):
            await asyncio.to_thread(file.path.unlink)

    return Transfer(f"delete {file.path}", 0, work)


async def _is_same(client: AsyncClient, container: str, file: LocalFile | None, entry: Entry | None) -> bool:
    """Whether a file and an object have the same bytes."""
    if file is None or entry is None or file.size != entry.size:
        return False
    if not entry.is_static_large:
        return await asyncio.to_thread(_have, file.path, [(file.size, entry.etag)])
    segments = await client.segments(container, entry.name)
    return sum(size for size, _ in segments) == file.size and await asyncio.to_thread(_have, file.path, segments)


def _have(path: Path, pieces: Sequence[tuple[int, str]]) -> bool:
    """Whether a file consists of pieces with these sizes and ETags; not, if one of them is no digest of bytes."""
    with local_errors(path), path.open("rb") as file:
        for size, etag in pieces:
            digest = digest_for(etag)
            if digest is None:
                return False
            left = size
            while left and (data := file.read(min(CHUNK, left))):
                digest.update(data)
                left -= len(data)
            if left or digest.etag() != etag:
                return False
    return True
