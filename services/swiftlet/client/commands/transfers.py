"""Transfers of a command: each one told when it fails, while the others go on."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import stat
import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import click

from swiftlet.client.bodies import CHUNK, Source
from swiftlet.client.client import AsyncClient
from swiftlet.client.commands.places import Remote
from swiftlet.client.commands.shared import explain, tell
from swiftlet.client.commands.terminal import Bar
from swiftlet.client.commands.trees import RefusedName, mtime_metadata, path_below, restore_mtime
from swiftlet.client.concurrency import run_each
from swiftlet.client.errors import NotFound
from swiftlet.client.progress import Progress
from swiftlet.client.values import ALWAYS, Conditions


@dataclass(frozen=True, slots=True)
class Transfer:
    """One thing to do, and how it is told."""

    what: str
    size: int
    work: Callable[[Progress], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Choices:
    """How files are uploaded."""

    content_type: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    no_clobber: bool = False
    resume: bool = False


async def run_transfers(
    transfers: Iterable[Transfer] | AsyncIterable[Transfer], at_once: int, bar: Bar, *, is_verbose: bool
) -> int:
    """Run transfers; return how many failed."""
    failures = 0

    async def one(transfer: Transfer) -> None:
        bar.expect(transfer.size)
        try:
            await transfer.work(bar.transfer(id(transfer)))
        finally:
            bar.end(id(transfer))

    with bar:
        async with aclosing(run_each(transfers, one, at_once)) as ended:
            async for transfer, result in ended:
                if result is not None:
                    failures += 1
                    bar.clear()
                    tell(f"{transfer.what}: {explain(result)}")
                elif is_verbose:
                    bar.clear()
                    click.echo(transfer.what)
    return failures


def upload(client: AsyncClient, path: Path, target: Remote, size: int, mtime_ns: int, choices: Choices) -> Transfer:
    """Return the transfer of a file to the store."""

    async def work(progress: Progress) -> None:
        await put(client, path, target, choices, progress, mtime_metadata(mtime_ns))

    return Transfer(f"{path} -> {target}", size, work)


async def put(
    client: AsyncClient,
    source: Source,
    target: Remote,
    choices: Choices,
    progress: Progress | None = None,
    metadata: dict[str, str] | None = None,
) -> None:
    """Store one body as a command was asked to."""
    try:
        await client.put(
            target.container,
            target.name,
            source,
            content_type=choices.content_type or mimetypes.guess_type(target.name)[0] or "application/octet-stream",
            metadata={**(metadata or {}), **choices.metadata},
            conditions=Conditions(if_none_match="*") if choices.no_clobber else ALWAYS,
            progress=progress,
            resume=choices.resume,
        )
    except NotFound as error:
        raise NotFound(
            error.status,
            f"there is no container {target.container}; --create makes it",
            f"PUT {target}",
            error.request_id,
        ) from error


def download_below(client: AsyncClient, source: Remote, folder: Path, relative: str, size: int) -> Transfer:
    """Return the transfer of an object to a file below a folder; it fails if there can't be a file of the name."""
    try:
        return download(client, source, path_below(folder, relative), size)
    except RefusedName as error:
        reason = error

        async def refuse(_: Progress) -> None:
            raise reason

        return Transfer(str(source), 0, refuse)


def download(client: AsyncClient, source: Remote, path: Path, size: int) -> Transfer:
    """Return the transfer of an object to a file."""

    async def work(progress: Progress) -> None:
        done = await client.download(source.container, source.name, path, progress=progress)
        restore_mtime(path, dict(done.info.metadata))

    return Transfer(f"{source} -> {path}", size, work)


def standard_input() -> Source:
    """Return standard input as a body. What may wait for somebody is not read by a thread, which Ctrl-C can't end."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError):
        return sys.stdin.buffer
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)
    return _piped() if waits else sys.stdin.buffer


async def _piped() -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader(limit=CHUNK)
    loop = asyncio.get_running_loop()
    # The loop closes what it reads.
    own = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), own)
    try:
        while data := await reader.read(CHUNK):
            yield data
    finally:
        # A terminal is shared with the shell, which expects it to block.
        os.set_blocking(sys.stdin.fileno(), True)
        transport.close()


async def write_out(client: AsyncClient, source: Remote, version_id: str | None = None) -> None:
    """Write an object to standard output."""
    async with client.open(source.container, source.name, version_id=version_id) as reading:
        async for data in reading:
            sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
