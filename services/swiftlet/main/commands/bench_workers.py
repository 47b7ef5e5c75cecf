"""`swiftlet bench coordinator` and `swiftlet bench worker`: several generators on several machines as one."""

from __future__ import annotations

import os
import secrets
import socket
import time
from pathlib import Path

import click

from swiftlet.bench import catalogue
from swiftlet.bench.errors import BenchError
from swiftlet.bench.progress import Line
from swiftlet.bench.table import print_result
from swiftlet.bench.target import Api
from swiftlet.bench.workers.channel import MAX_NAME_CHARACTERS, Channel, greet
from swiftlet.bench.workers.coordinator import MAX_WORKERS, Plan, check_plan, coordinate
from swiftlet.bench.workers.frames import MIN_TOKEN_CHARACTERS
from swiftlet.bench.workers.worker import work
from swiftlet.main.commands.bench_shared import (
    api_option,
    ca_file_option,
    check_writable,
    code_of,
    console,
    credentials_option,
    html_option,
    json_option,
    prefix_option,
    runs_option,
    stops,
    store_of,
    tell,
)

DEFAULT_PORT = 6299
MAX_WAIT_S = 86_400.0
"""The largest value of --wait: a day."""
_MAX_TOKEN_BYTES = 4096
"""The largest size of the file that --token-file names."""
_RETRY_S = 0.5
_CONNECT_S = 5.0

token_option = click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help=f"File with a secret of {MIN_TOKEN_CHARACTERS} characters and more that coordinator and workers share.",
)
wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, MAX_WAIT_S, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds to wait for the other side.",
)


@click.command(short_help="Run a scenario with workers on several machines.")
@click.argument("scenario")
@click.option("--workers", type=click.IntRange(1, MAX_WORKERS), required=True, help="Workers to wait for.")
@click.option("--listen", default=f"127.0.0.1:{DEFAULT_PORT}", show_default=True, help="Address that workers come to.")
@token_option
@wait_option
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change the scenario.")
@runs_option
@json_option
@html_option
@prefix_option
@click.option("--keep", is_flag=True, help="Leave the objects in the store.")
@click.option(
    "--progress-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep one line about what is being done in this file.",
)
def coordinator(
    scenario: str,
    workers: int,
    listen: str,
    token_file: Path,
    wait_s: float,
    changes: tuple[str, ...],
    runs: int,
    json_path: Path | None,
    html_path: Path | None,
    prefix: str | None,
    keep: bool,
    progress_file: Path | None,
) -> None:
    """Wait for workers, let all of them begin each step of SCENARIO at the same moment, and print what they measured.

    \b
      swiftlet bench coordinator small-upload --workers 4 --listen 0.0.0.0:6299 --token-file secret
      swiftlet bench worker --coordinator host:6299 --token-file secret --target http://store:8080

    Each worker does the whole scenario in containers of its own, so the store gets that many times its connections or
    rate. Histograms are added; no percentile is a mean of others. Workers log in at the store by themselves: the
    coordinator needs no credentials. Exit code 1 when an operation failed or a worker was lost.
    """
    chosen = catalogue.find(scenario, changes)
    check_plan(chosen, workers)
    for path in (json_path, html_path, progress_file):
        check_writable(path)
    token = _token(token_file)
    line = Line(progress_file)
    chosen_prefix = prefix or f"swiftlet-bench-{secrets.token_hex(4)}"
    host, port = _address(listen, "--listen")
    try:
        listener = socket.create_server((host, port), backlog=MAX_WORKERS)
    except OSError as error:
        raise BenchError(f"--listen {listen}: nobody can be waited for there: {error.strerror or error}") from error
    try:
        with listener, stops() as asked:
            plan = Plan(chosen, workers, chosen_prefix, runs, wait_s, keep, line.report, asked)
            result = coordinate(plan, listener, token)
    finally:
        line.clear()
    tell(result, None, json_path, html_path)
    raise click.exceptions.Exit(code_of(result) or int(bool(result.lost)))


@click.command(short_help="Be one of a coordinator's workers.")
@click.option("--coordinator", "address", required=True, help="Address of `swiftlet bench coordinator`, as host:6299.")
@token_option
@wait_option
@click.option("--name", default=None, help="What the coordinator calls this worker; by default host and process.")
@click.option("--target", help="Where the store is, as for `swiftlet bench run`.")
@api_option
@credentials_option
@ca_file_option
def worker(
    address: str,
    token_file: Path,
    wait_s: float,
    name: str | None,
    target: str | None,
    api: Api,
    credentials: str | None,
    ca_file: Path | None,
) -> None:
    """Load a store as `swiftlet bench coordinator` says, once, and print what this worker has measured."""
    token = _token(token_file)
    store = store_of(target, api, credentials, None, ca_file)
    chosen = (name or f"{socket.gethostname()}:{os.getpid()}")[:MAX_NAME_CHARACTERS]
    channel = _reached(_address(address, "--coordinator"), token, chosen, wait_s)
    line = Line()
    try:
        with stops() as asked:
            result = work(channel, store, line.report, asked)
    finally:
        line.clear()
        channel.close()
    print_result(result, console())
    raise click.exceptions.Exit(code_of(result))


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            token = file.read(_MAX_TOKEN_BYTES + 1).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(f"--token-file {path} can't be read: {error}") from error
    if not MIN_TOKEN_CHARACTERS <= len(token.encode()) <= _MAX_TOKEN_BYTES:
        raise BenchError(
            f"--token-file {path} has {len(token)} characters; {MIN_TOKEN_CHARACTERS} to {_MAX_TOKEN_BYTES:,} are "
            "needed, as `openssl rand -hex 32` makes them"
        )
    return token


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) <= 65_535:
        raise click.BadParameter(f"{text!r} is no address such as host:{DEFAULT_PORT}", param_hint=option)
    return host.strip("[]"), int(port)


def _reached(address: tuple[str, int], token: str, name: str, wait_s: float) -> Channel:
    """Connect to the coordinator, which may start later than this worker."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            sock = socket.create_connection(address, timeout=_CONNECT_S)
        except OSError as error:
            if time.monotonic() >= deadline:
                where = f"{address[0]}:{address[1]}"
                raise BenchError(f"--coordinator {where}: no coordinator within {wait_s:g} s: {error}") from error
            time.sleep(_RETRY_S)
            continue
        return greet(sock, token, name)
