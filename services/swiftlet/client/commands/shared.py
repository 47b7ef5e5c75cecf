"""What all commands share: how a client is made, options, and how errors are told."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import click

from swiftlet.client.client import AsyncClient
from swiftlet.client.credentials import MOUNTED_AT, MountedSecret, find_credentials
from swiftlet.client.errors import ClientError, ConfigurationError, Forbidden, Unauthorized
from swiftlet.client.surroundings import METADATA_VARIABLE, find_options

P = ParamSpec("P")
R = TypeVar("R")
_BROKEN_PIPE = 141


class Failed(click.ClickException):
    """The command failed; its message goes to standard error in one line."""

    def show(self, file: Any = None) -> None:
        """Write the message to standard error."""
        tell(self.message)


def tell(message: str) -> None:
    """Write a message to standard error."""
    click.echo(f"swiftlet: {message}", err=True)


def explain(error: ClientError) -> str:
    """Return what is wrong, and what to do about it where that is known."""
    if isinstance(error, Unauthorized):
        return (
            f"{error}; the store does not take the credentials: check ST_USER and ST_KEY, OS_*, or the mounted Secret"
        )
    if isinstance(error, Forbidden):
        return f"{error}; the user may not do this: the container's ACL or a role has to allow it"
    return str(error)


@dataclass(frozen=True, slots=True)
class Connection:
    """How the store is reached: what `connection_options` adds to a command."""

    credentials: str | None
    concurrency: int
    ca_file: str | None
    insecure: bool
    direct: bool | None = None
    """Whether objects go directly to the devices; None: if the environment names metadata servers."""

    def client(self) -> AsyncClient:
        """Return a client that logs in with the credentials of the options or the environment."""
        found = MountedSecret(directory=self.credentials) if self.credentials else find_credentials()
        options = find_options(
            mounted_at=self.credentials or MOUNTED_AT,
            concurrency=self.concurrency,
            connections=max(32, self.concurrency * 2),
            ca_file=self.ca_file,
            insecure=self.insecure,
            **({"metadata_url": None} if self.direct is False else {}),
        )
        if self.direct and options.metadata_url is None:
            raise ConfigurationError(f"--direct needs the URL of the metadata servers: set {METADATA_VARIABLE}")
        return AsyncClient(found, options)


def connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options by which a command reaches the store; it is given a `Connection`."""

    @click.option(
        "--credentials",
        type=click.Path(exists=True, file_okay=False),
        help="Folder where the Secret of a StorageUser is mounted, instead of ST_* and OS_* in the environment.",
    )
    @click.option(
        "--concurrency", type=click.IntRange(1, 256), default=8, show_default=True, help="Requests at a time."
    )
    @click.option(
        "--ca-file",
        type=click.Path(exists=True, dir_okay=False),
        envvar="OS_CACERT",
        help="Certificate authorities to believe, in PEM (OS_CACERT).",
    )
    @click.option("--insecure", is_flag=True, help="Do not check certificates: for trials only.")
    @click.option(
        "--direct/--http",
        default=None,
        help="Move objects to and from the devices, or through proxies; without either, to the devices if "
        "SWIFTLET_METADATA_URL or the mounted Secret names metadata servers.",
    )
    @functools.wraps(function)
    def run(
        *arguments: Any,
        credentials: str | None,
        concurrency: int,
        ca_file: str | None,
        insecure: bool,
        direct: bool | None,
        **options: Any,
    ) -> Any:
        connection = Connection(credentials, concurrency, ca_file, insecure, direct)
        return function(*arguments, connection=connection, **options)

    return run


def reported(function: Callable[P, Awaitable[int]]) -> Callable[P, None]:
    """Run a command that returns how many things failed; errors become messages and exit codes, never tracebacks."""

    @functools.wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            failures = asyncio.run(_awaited(function(*arguments, **options)))
        except ConfigurationError as error:
            raise Failed(str(error)) from error
        except ClientError as error:
            raise Failed(explain(error)) from error
        except BrokenPipeError as error:
            # Python would complain when it flushes standard output at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(_BROKEN_PIPE) from error
        except OSError as error:
            raise Failed(f"{error.filename or 'output'}: {error.strerror or error}") from error
        if failures:
            raise click.exceptions.Exit(1)

    return run


async def _awaited(awaitable: Awaitable[R]) -> R:
    return await awaitable
