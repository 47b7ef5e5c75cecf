"""`swiftlet bench`: measure a store, and compare what was measured."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import ssl
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import click
from rich.console import Console

from swiftlet.bench import catalogue, comparison
from swiftlet.bench.errors import BenchError
from swiftlet.bench.page import render
from swiftlet.bench.processes import Watch
from swiftlet.bench.progress import Line
from swiftlet.bench.results import Result, appended, check_appending, read_result
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.table import print_result
from swiftlet.bench.target import Target
from swiftlet.bench.verdicts import document, print_comparison
from swiftlet.client.commands.shared import explain
from swiftlet.client.credentials import V1, Credentials, MountedSecret, Token, find_credentials
from swiftlet.client.errors import ClientError, ConfigurationError
from swiftlet.client.login import Login, log_in
from swiftlet.main.commands.standalone.plan import Layout

MAX_RUNS = 1000
"""Runs of a scenario in one command."""
_LOGIN = "/auth/v1.0"
_FILE_WIDTH = 200


@click.group(short_help="Measure a store, and compare results.")
def bench() -> None:
    """Load a store that speaks the Swift API as a scenario says, and measure it."""


@bench.command("list", short_help="List the scenarios that ship.")
def list_() -> None:
    """List the scenarios that ship, with what each repeats."""
    for name in catalogue.shipped():
        scenario = catalogue.find(name)
        click.echo(f"{name}: {scenario.title}")
        note = f"Repeats {scenario.repeats}" if scenario.repeats else scenario.about
        click.echo(textwrap.fill(note, 100, initial_indent=" " * 4, subsequent_indent=" " * 4))


@bench.command(short_help="Print a scenario's file.")
@click.argument("scenario")
def show(scenario: str) -> None:
    """Print the file of SCENARIO, to be changed and given to `swiftlet bench run`."""
    click.echo(catalogue.text_of(scenario), nl=False)


@bench.command(short_help="Print the schema of scenarios.")
def schema() -> None:
    """Print the JSON schema of scenarios: all fields with bounds and defaults. Editors check files by it."""
    click.echo(json.dumps(Scenario.model_json_schema(), indent=2))


@bench.command("run", short_help="Run a scenario against a store.")
@click.argument("scenario")
@click.option(
    "--target",
    help="Where the store is: its address (http://host:8080), the URL of its /auth/v1.0, or an account's URL that "
    "takes the place of the one that logging in gives. Without it, credentials say where.",
)
@click.option(
    "--credentials",
    type=click.Path(exists=True, file_okay=False),
    help="Folder where the Secret of a StorageUser is mounted, instead of ST_* and OS_* in the environment.",
)
@click.option(
    "--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change the scenario, as closed.connections=8."
)
@click.option(
    "--runs", type=click.IntRange(1, MAX_RUNS), default=1, show_default=True, help="Repeat all steps so often."
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the result here.")
@click.option(
    "--html", "html_path", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots here."
)
@click.option("--append", is_flag=True, help="Add the runs to those that the file of --json has already.")
@click.option("--prefix", default=None, help="Containers' names begin with it; by default a new one for each command.")
@click.option("--keep", is_flag=True, help="Leave the objects in the store.")
@click.option("--pids", default="", help="Processes under test, with commas between: their use is measured, too.")
@click.option(
    "--cluster",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Data directory of a `swiftlet standalone` on this machine: its processes are measured; its user logs in when "
    "the environment has no credentials.",
)
@click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="OS_CACERT",
    help="Certificate authorities to believe, in PEM (OS_CACERT).",
)
def run_scenario(
    scenario: str,
    target: str | None,
    credentials: str | None,
    changes: tuple[str, ...],
    runs: int,
    json_path: Path | None,
    html_path: Path | None,
    append: bool,
    prefix: str | None,
    keep: bool,
    pids: str,
    cluster: Path | None,
    ca_file: Path | None,
) -> None:
    """Run SCENARIO, the name of one that ships or a file, and print what was measured.

    \b
      swiftlet bench run small-upload --target http://127.0.0.1:8080
      swiftlet bench run small-upload --set duration_s=10 --set closed.connections=[1,8,64]
      swiftlet bench run my.yaml --runs 5 --json now.json

    Objects are stored in containers of their own, and deleted in the end. Exit code 1 when an operation failed.
    """
    chosen = catalogue.find(scenario, changes)
    if append and json_path is None:
        raise click.UsageError("--append needs --json: it names the file that runs are added to")
    for path in (json_path, html_path):
        _check_writable(path)
    before = read_result(json_path) if append and json_path is not None and json_path.exists() else None
    watch = _watch(pids, cluster)
    store = _log_in(_credentials(target, credentials, cluster), ca_file)
    if before is not None:
        check_appending(before, chosen.document(), store.storage_url)
    line = Line()
    chosen_prefix = prefix or f"swiftlet-bench-{secrets.token_hex(4)}"
    try:
        with _stops() as stops:
            result = run(chosen, store, Options(chosen_prefix, runs, keep, watch, line.report, stops))
    finally:
        line.clear()
    print_result(result, _console())
    whole = result if before is None else appended(before, result)
    if json_path is not None:
        _write(json_path, whole.model_dump_json() + "\n")
    if html_path is not None:
        _write(html_path, render(whole))
    raise click.exceptions.Exit(_code(result))


@bench.command(short_help="Write the page of a result.")
@click.argument("result", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("html", type=click.Path(dir_okay=False, path_type=Path))
def page(result: Path, html: Path) -> None:
    """Write the page with table and plots of the file RESULT, which --json has written, to the file HTML."""
    _write(html, render(read_result(result)))


@bench.command(short_help="Say whether two results differ.")
@click.argument("before", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("after", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document a row.")
def compare(before: Path, after: Path, as_json: bool) -> None:
    """Compare the files BEFORE and AFTER, which --json has written, of the same scenario with several runs each.

    The ratio is that of medians, with the interval of a bootstrap at 95 %; the verdict is that of the Mann-Whitney test
    at 5 %, which needs four runs a side. Exit code 1 when a figure is worse.
    """
    rows = comparison.compare(read_result(before), read_result(after))
    if as_json:
        for row in rows:
            click.echo(json.dumps(document(row)))
    else:
        print_comparison(rows, _console())
    raise click.exceptions.Exit(int(any(row.verdict == comparison.WORSE for row in rows)))


@bench.command(short_help="Measure unit costs, for `swiftlet advise`.")
@click.argument("store", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="File of unit costs to write, for `swiftlet advise --costs`.",
)
@click.option("--runs", type=click.IntRange(1, MAX_RUNS), default=3, show_default=True, help="The medians of so many.")
def costs(store: Path, output: Path, runs: int) -> None:
    """Measure what each operation takes of each service of STORE, a file of `swiftlet standalone --ready-file`.

    \b
      swiftlet standalone --data /srv/try --ready-file /srv/try.json &
      swiftlet bench costs /srv/try.json --output costs.json

    It takes a quarter of an hour and needs some gigabytes of space, which it gives back.
    """
    from swiftlet.advice.costs import document as costs_document
    from swiftlet.main.commands.advise.measuring import measure, read_store

    _check_writable(output)
    local = read_store(store)
    target = _log_in(V1(auth_url=f"{local.endpoint}{_LOGIN}", user=local.user, key=local.key), None)
    found = measure(local, target, runs, lambda text: click.echo(text, err=True))
    _write(output, json.dumps(costs_document(found), indent=1) + "\n")


def _console() -> Console:
    """Return standard output; a file or a pipe has long lines."""
    found = Console()
    return found if found.is_terminal else Console(width=_FILE_WIDTH)


@contextmanager
def _stops() -> Iterator[Callable[[], int]]:
    """Within the block Ctrl-C is counted, and interrupts nothing by itself."""
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield lambda: len(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def _code(result: Result) -> int:
    if result.is_cut_short:
        return 130
    return 1 if any(step.failed for step in result.steps) else 0


def _check_writable(path: Path | None) -> None:
    """Check before a run that its result can be written after it."""
    if path is not None and not os.access(path.absolute().parent, os.W_OK):
        raise BenchError(f"{path} can't be written: {path.absolute().parent} is no folder that may be written to")


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except OSError as error:
        raise BenchError(f"{path} can't be written: {error.strerror or error}") from error


def _watch(pids: str, cluster: Path | None) -> Watch | None:
    try:
        chosen = [int(pid) for pid in pids.split(",") if pid.strip()]
    except ValueError as error:
        raise click.BadParameter(f"{pids!r}: write process ids with commas between", param_hint="--pids") from error
    if cluster is not None:
        lock = Layout(cluster).lock
        try:
            chosen.append(int(lock.read_text()))
        except (OSError, ValueError) as error:
            raise BenchError(f"no store runs on {cluster}: {lock} has no process id") from error
    return Watch(chosen) if chosen else None


def _credentials(target: str | None, mounted: str | None, cluster: Path | None) -> Credentials:
    given = _where(target, dict(os.environ))
    try:
        found = MountedSecret(directory=mounted) if mounted is not None else find_credentials(given)
    except ConfigurationError as error:
        if cluster is None or "ST_AUTH" not in given:
            raise BenchError(str(error)) from error
        found = _of_cluster(cluster, given["ST_AUTH"])
    path = urlsplit(target).path.rstrip("/") if target is not None else ""
    if target is None or path in {"", _LOGIN}:
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
    if parts.path.rstrip("/") in {"", _LOGIN}:
        return {**given, "ST_AUTH": f"{parts.scheme}://{parts.netloc}{_LOGIN}"}
    return given


def _of_cluster(cluster: Path, auth_url: str) -> Credentials:
    path = Layout(cluster).secrets
    try:
        known = json.loads(path.read_text())
        return V1(auth_url=auth_url, user=known["user"], key=known["key"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} has no user and key: {error}; set ST_USER and ST_KEY") from error


def _log_in(credentials: Credentials, ca_file: Path | None) -> Target:
    try:
        login = asyncio.run(_asked(credentials, ca_file))
    except ClientError as error:
        raise BenchError(explain(error)) from error
    return Target(login.storage_url, login.token, ca_file)


async def _asked(credentials: Credentials, ca_file: Path | None) -> Login:
    context = ssl.create_default_context(cafile=str(ca_file) if ca_file is not None else None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        return await log_in(session, credentials)
