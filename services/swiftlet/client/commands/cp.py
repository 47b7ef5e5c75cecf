"""`swiftlet cp`: files to objects, objects to files, objects to objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import click

from swiftlet.client.bodies import local_errors
from swiftlet.client.client import AsyncClient
from swiftlet.client.commands.places import PLACE, Local, Place, Remote
from swiftlet.client.commands.shared import Connection, connection_options, reported
from swiftlet.client.commands.terminal import Bar
from swiftlet.client.commands.transfers import (
    Choices,
    Transfer,
    download,
    download_below,
    put,
    run_transfers,
    standard_input,
    upload,
    write_out,
)
from swiftlet.client.commands.trees import exists, files_below, name_for, objects_below, path_below
from swiftlet.client.errors import LocalError, PreconditionFailed
from swiftlet.client.progress import Progress


@click.command(short_help="Copy files and objects, to a store, from it, or within it.")
@click.argument("sources", nargs=-1, required=True, type=PLACE)
@click.argument("target", type=PLACE)
@click.option("-r", "--recursive", is_flag=True, help="Copy all that is below a folder or a prefix.")
@click.option("-n", "--no-clobber", is_flag=True, help="Do not replace objects that there are.")
@click.option("--create", is_flag=True, help="Make the container if there is none.")
@click.option("--resume", is_flag=True, help="Go on where an upload of the same large file has failed.")
@click.option("--content-type", help="Content type of what is uploaded; otherwise it follows from the name.")
@click.option("--meta", "metadata", multiple=True, metavar="NAME=VALUE", help="Metadata of what is uploaded.")
@click.option("-q", "--quiet", is_flag=True, help="Write errors only.")
@connection_options
def cp(connection: Connection, **options: object) -> None:
    """Copy SOURCES to TARGET.

    \b
      swiftlet cp big.bin swift://photos/            to photos/big.bin, in segments if it is large
      swiftlet cp swift://photos/big.bin .           and back, in parallel and verified
      swiftlet cp -r folder swift://photos/2026      what is below folder to photos/2026/...
      swiftlet cp swift://photos/a swift://trash/    within the store
      tar c . | swiftlet cp - swift://backup/x.tar   from standard input; `-` as target: to standard output

    Several sources, and sources with -r, need a folder as the target: a container, a name with a slash at its end, or
    a folder of this machine.
    """
    _copy(connection, **options)  # type: ignore[arg-type]


@reported
async def _copy(
    connection: Connection,
    sources: tuple[Place, ...],
    target: Place,
    recursive: bool,
    no_clobber: bool,
    create: bool,
    resume: bool,
    content_type: str | None,
    metadata: tuple[str, ...],
    quiet: bool,
) -> int:
    choices = Choices(content_type, _metadata(metadata), no_clobber, resume)
    _check(sources, target, recursive, choices)
    async with connection.client() as client:
        if create and isinstance(target, Remote):
            await client.create_container(target.container)
        streams = [place for place in (*sources, target) if isinstance(place, Local) and place.is_stream]
        if streams and isinstance(target, Remote):
            await put(client, standard_input(), target, choices)
            return 0
        if streams:
            for source in sources:
                assert isinstance(source, Remote)
                await write_out(client, source)
            return 0
        transfers = _transfers(client, sources, target, recursive, choices)
        return await run_transfers(transfers, connection.concurrency, Bar(not quiet), is_verbose=False)


def _metadata(items: tuple[str, ...]) -> dict[str, str]:
    made = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--meta {item}: write NAME=VALUE")
        made[name] = value
    return made


def _check(sources: tuple[Place, ...], target: Place, recursive: bool, choices: Choices) -> None:
    """Refuse what makes no sense."""
    if isinstance(target, Remote) and not target.container:
        raise click.UsageError(f"{target} names no container: swift://CONTAINER/NAME")
    for source in sources:
        if isinstance(source, Local) and isinstance(target, Local):
            raise click.UsageError("neither side is in the store: one of them is swift://CONTAINER/NAME")
        if isinstance(source, Remote) and not source.container:
            raise click.UsageError("swift:// alone names no object: swift://CONTAINER/NAME")
        if isinstance(source, Remote) and not source.name and not recursive:
            raise click.UsageError(f"{source} is a container: -r copies what is in it")
        if isinstance(source, Local) and source.is_stream and (target.is_folder or len(sources) > 1 or recursive):
            raise click.UsageError("standard input is one object: name it, swift://CONTAINER/NAME")
    if isinstance(target, Local) and target.is_stream and recursive:
        raise click.UsageError("-r needs a folder as the target")
    if len(sources) > 1 and not target.is_folder and not (isinstance(target, Local) and target.is_stream):
        raise click.UsageError(f"several sources need a folder as the target, and {target} is none: add a slash")
    if not isinstance(target, Remote) and (choices.no_clobber or choices.metadata or choices.content_type):
        raise click.UsageError("--no-clobber, --meta and --content-type are for what is stored, not for files")


async def _transfers(
    client: AsyncClient, sources: tuple[Place, ...], target: Place, recursive: bool, choices: Choices
) -> AsyncIterator[Transfer]:
    for source in sources:
        if isinstance(source, Local):
            assert isinstance(target, Remote)
            for transfer in _uploads(client, source, target, recursive, choices):
                yield transfer
        elif isinstance(target, Local):
            async for transfer in _downloads(client, source, target, recursive):
                yield transfer
        else:
            async for transfer in _copies(client, source, target, recursive, choices):
                yield transfer


def _uploads(
    client: AsyncClient, source: Local, target: Remote, recursive: bool, choices: Choices
) -> Iterator[Transfer]:
    path = source.path
    if path.is_dir():
        if not recursive:
            raise LocalError(f"{path} is a folder: -r copies what is in it")
        for file in files_below(path):
            place = Remote(target.container, name_for(target.below, file.relative))
            yield upload(client, file.path, place, file.size, file.mtime_ns, choices)
        return
    with local_errors(path):
        status = path.stat()
    name = name_for(target.name, path.name) if target.is_folder else target.name
    yield upload(client, path, Remote(target.container, name), status.st_size, status.st_mtime_ns, choices)


async def _downloads(client: AsyncClient, source: Remote, target: Local, recursive: bool) -> AsyncIterator[Transfer]:
    if not recursive:
        size = (await client.head(source.container, source.name)).size
        path = path_below(target.path, source.name.rpartition("/")[2]) if target.is_folder else target.path
        yield download(client, source, path, size or 0)
        return
    is_empty = True
    async for relative, entry in objects_below(client, source):
        is_empty = False
        place = Remote(source.container, entry.name)
        yield download_below(client, place, target.path, relative, entry.size)
    if is_empty and source.name:
        raise LocalError(f"there is nothing below {source}")


async def _copies(
    client: AsyncClient, source: Remote, target: Remote, recursive: bool, choices: Choices
) -> AsyncIterator[Transfer]:
    def copy(place: Remote, name: str, size: int) -> Transfer:
        headers = {"Content-Type": choices.content_type} if choices.content_type else {}

        async def work(progress: Progress) -> None:
            to = (target.container, name)
            # The conditions of a copy are its source's.
            if choices.no_clobber and await exists(client, Remote(*to)):
                raise PreconditionFailed(412, "the object exists", f"COPY {place}")
            await client.copy((place.container, place.name), to, metadata=choices.metadata, headers=headers)
            progress(size, size)

        return Transfer(f"{place} -> {Remote(target.container, name)}", size, work)

    if not recursive:
        name = target.name + source.name.rpartition("/")[2] if target.is_folder else target.name
        yield copy(source, name, (await client.head(source.container, source.name)).size or 0)
        return
    async for relative, entry in objects_below(client, source):
        yield copy(Remote(source.container, entry.name), target.below + relative, entry.size)
