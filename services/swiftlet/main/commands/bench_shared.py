"""The commands of `swiftlet bench` share this: options, where to log in, Ctrl-C, files and exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import click
from rich.console import Console

from swiftlet.bench.errors import BenchError
from swiftlet.bench.page import render
from swiftlet.bench.results import Result, appended, read_result
from swiftlet.bench.table import print_result
from swiftlet.bench.target import APIS, Api, Keys, Target
from swiftlet.client.commands.shared import explain
from swiftlet.client.credentials import V1, Credentials, MountedSecret, Token, find_credentials
from swiftlet.client.errors import ClientError, ConfigurationError
from swiftlet.client.login import Login, log_in
from swiftlet.main.commands.bench_direct import directly
from swiftlet.main.commands.standalone.plan import Layout

MAX_RUNS = 1000
"""Runs of a scenario in one command."""
LOGIN = "/auth/v1.0"
_FILE_WIDTH = 200


api_option = click.option(
    "--api",
    type=click.Choice(APIS),
    default="swift",
    show_default=True,
    help="What the store speaks: Swift's API; S3 with buckets in the path, signed with AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY for AWS_REGION where they are set; PUT, GET and DELETE of files; or direct, "
    "objects to and from the devices of Swiftlet, whose metadata servers SWIFTLET_METADATA_URL names.",
)
credentials_option = click.option(
    "--credentials",
    type=click.Path(exists=True, file_okay=False),
    help="Folder where the Secret of a StorageUser is mounted, instead of ST_* and OS_* in the environment.",
)
runs_option = click.option(
    "--runs", type=click.IntRange(1, MAX_RUNS), default=1, show_default=True, help="Repeat all steps so often."
)
json_option = click.option(
    "--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the result here."
)
html_option = click.option(
    "--html", "html_path", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots here."
)
append_option = click.option(
    "--append", is_flag=True, help="Add the runs to those that the file of --json has already."
)
prefix_option = click.option(
    "--prefix", default=None, help="Containers' names begin with it; by default a new one for each command."
)
ca_file_option = click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="OS_CACERT",
    help="Certificate authorities to believe, in PEM (OS_CACERT).",
)


def console() -> Console:
    """Return standard output; a file or a pipe has long lines."""
    found = Console()
    return found if found.is_terminal else Console(width=_FILE_WIDTH)


@contextmanager
def stops(*also: signal.Signals) -> Iterator[Callable[[], int]]:
    """Within the block Ctrl-C and signals are counted, and interrupt nothing by themselves; also where a shell has had
    them ignored."""
    asked: list[int] = []
    before = {one: signal.signal(one, lambda number, _: asked.append(number)) for one in (signal.SIGINT, *also)}
    try:
        yield lambda: len(asked)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def code_of(result: Result) -> int:
    """Return the exit code of a result: 130 when Ctrl-C cut it short, 1 when an operation failed."""
    if result.is_cut_short:
        return 130
    return 1 if any(step.failed for step in result.steps) else 0


def check_writable(path: Path | None) -> None:
    """Check before a run that its result can be written after it."""
    if path is not None and not os.access(path.absolute().parent, os.W_OK):
        raise BenchError(f"{path} can't be written: {path.absolute().parent} is no folder that may be written to")


def write(path: Path, text: str) -> None:
    """Write a file as a whole; BenchError when that is impossible."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except OSError as error:
        raise BenchError(f"{path} can't be written: {error.strerror or error}") from error


def earlier(json_path: Path | None, html_path: Path | None, append: bool) -> Result | None:
    """Check before a run that its result can be written; return the one that --append adds it to, None without one."""
    if append and json_path is None:
        raise click.UsageError("--append needs --json: it names the file that runs are added to")
    for path in (json_path, html_path):
        check_writable(path)
    return read_result(json_path) if append and json_path is not None and json_path.exists() else None


def tell(result: Result, before: Result | None, json_path: Path | None, html_path: Path | None) -> None:
    """Print a result, and write the files that are wanted, which have the runs of `before` as well."""
    print_result(result, console())
    kept = result if before is None else appended(before, result)
    if json_path is not None:
        write(json_path, kept.model_dump_json() + "\n")
    if html_path is not None:
        write(html_path, render(kept))


def store_of(target: str | None, api: Api, mounted: str | None, cluster: Path | None, ca_file: Path | None) -> Target:
    """Return the store that options name, logged in at if it speaks Swift; BenchError when that fails."""
    if api in {"swift", "direct"}:
        store = log_in_at(credentials_of(target, mounted, cluster), ca_file)
        return store if api == "swift" else directly(store, mounted)
    if target is None:
        raise click.UsageError(f"--api {api} needs --target: the URL that buckets or folders are below")
    if mounted is not None:
        raise click.UsageError(f"--credentials are those of a StorageUser, which --api {api} doesn't know")
    return Target(target, "", ca_file, api, _keys(os.environ) if api == "s3" else None)


def _keys(given: Mapping[str, str]) -> Keys | None:
    access, secret = given.get("AWS_ACCESS_KEY_ID", ""), given.get("AWS_SECRET_ACCESS_KEY", "")
    if bool(access) != bool(secret):
        raise BenchError("set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither: then nothing is signed")
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") or "us-east-1"
    return Keys(access, secret, region) if access else None


def credentials_of(target: str | None, mounted: str | None, cluster: Path | None) -> Credentials:
    """Return how to log in at a target, by a mounted Secret, the environment or the user of a local store."""
    given = _where(target, dict(os.environ))
    try:
        found = MountedSecret(directory=mounted) if mounted is not None else find_credentials(given)
    except ConfigurationError as error:
        if cluster is None or "ST_AUTH" not in given:
            raise BenchError(str(error)) from error
        found = _of_cluster(cluster, given["ST_AUTH"])
    path = urlsplit(target).path.rstrip("/") if target is not None else ""
    if target is None or path in {"", LOGIN}:
        return replace(found, auth_url=given["ST_AUTH"]) if target and isinstance(found, MountedSecret) else found
    match found:
        case V1() | Token():
            return replace(found, storage_url=target)
        case MountedSecret():
            return replace(found.read(), storage_url=target)
        case _:
            return replace(found, catalog=replace(found.catalog, storage_url=target))


def _where(target: str | None, given: dict[str, str]) -> dict[str, str]:
    """Return the environment with the address of a target as the place to log in at."""
    if target is None:
        return given
    parts = urlsplit(target)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise click.BadParameter(f"{target!r} is no URL such as http://127.0.0.1:8080", param_hint="--target")
    if parts.path.rstrip("/") in {"", LOGIN}:
        return {**given, "ST_AUTH": f"{parts.scheme}://{parts.netloc}{LOGIN}"}
    return given


def _of_cluster(cluster: Path, auth_url: str) -> Credentials:
    path = Layout(cluster).secrets
    try:
        known = json.loads(path.read_text())
        return V1(auth_url=auth_url, user=known["user"], key=known["key"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} has no user and key: {error}; set ST_USER and ST_KEY") from error


def log_in_at(credentials: Credentials, ca_file: Path | None) -> Target:
    """Log in; BenchError when the store refuses."""
    try:
        login = asyncio.run(_asked(credentials, ca_file))
    except ClientError as error:
        raise BenchError(explain(error)) from error
    return Target(login.storage_url, login.token, ca_file)


async def _asked(credentials: Credentials, ca_file: Path | None) -> Login:
    context = ssl.create_default_context(cafile=str(ca_file) if ca_file is not None else None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        return await log_in(session, credentials)
