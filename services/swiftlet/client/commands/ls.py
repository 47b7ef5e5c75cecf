"""`swiftlet ls`: containers, and objects of a container."""

from __future__ import annotations

import json
from typing import Any

import click

from swiftlet.client.client import AsyncClient
from swiftlet.client.commands.places import REMOTE, Remote
from swiftlet.client.commands.shared import Connection, connection_options, reported
from swiftlet.client.commands.terminal import human


@click.command(short_help="List containers and objects.")
@click.argument("places", nargs=-1, type=REMOTE)
@click.option("-l", "--long", is_flag=True, help="Sizes, times and ETags too; of containers: objects and bytes.")
@click.option("-r", "--recursive", is_flag=True, help="All objects, not those up to the next slash only.")
@click.option("-H", "--human", "is_human", is_flag=True, help="Sizes with units.")
@click.option("--versions", is_flag=True, help="All versions of objects, with their ids.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line.")
@connection_options
def ls(connection: Connection, **options: object) -> None:
    """List PLACES: without one the account's containers, otherwise the objects whose names begin as given.

    \b
      swiftlet ls                        containers
      swiftlet ls swift://photos/2026/   what is below 2026/
      swiftlet ls -lr swift://photos     all objects with their sizes
    """
    _list(connection, **options)  # type: ignore[arg-type]


@reported
async def _list(
    connection: Connection,
    places: tuple[Remote, ...],
    long: bool,
    recursive: bool,
    is_human: bool,
    versions: bool,
    as_json: bool,
) -> int:
    async with connection.client() as client:
        for place in places or (Remote(),):
            if not place.container:
                await _list_containers(client, long, is_human, as_json)
                continue
            delimiter = "" if recursive or versions else "/"
            async for entry in client.list(place.container, place.name, delimiter=delimiter, versions=versions):
                document = {
                    "name": entry.name,
                    "bytes": entry.size,
                    "etag": entry.etag,
                    "content_type": entry.content_type,
                    "last_modified": entry.last_modified.isoformat(),
                    "version_id": entry.version_id,
                }
                if as_json:
                    _json({"prefix": entry.name} if entry.is_prefix else document)
                elif entry.is_prefix:
                    click.echo(f"{'':12}  {'':19}  {'':32}  {entry.name}" if long else entry.name)
                else:
                    version = f"  {entry.version_id}{'  (current)' if entry.is_latest else ''}" if versions else ""
                    size, moment = _size(entry.size, is_human), f"{entry.last_modified:%Y-%m-%d %H:%M:%S}"
                    click.echo((f"{size}  {moment}  {entry.etag:32}  " if long else "") + entry.name + version)
    return 0


async def _list_containers(client: AsyncClient, long: bool, is_human: bool, as_json: bool) -> None:
    async for container in client.containers():
        if as_json:
            _json(
                {
                    "name": container.name,
                    "objects": container.objects,
                    "bytes": container.size,
                    "policy": container.policy,
                }
            )
        elif long:
            click.echo(f"{container.objects:12}  {_size(container.size, is_human)}  {container.name}")
        else:
            click.echo(container.name)


def _size(size: int, is_human: bool) -> str:
    return f"{human(size) if is_human else size:>12}"


def _json(document: dict[str, Any]) -> None:
    click.echo(json.dumps({name: value for name, value in document.items() if value is not None}, ensure_ascii=False))
