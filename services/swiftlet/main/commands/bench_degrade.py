"""`swiftlet bench degrade`, `modes` and `whole`: what clients notice while something of a store is broken."""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from swiftlet.bench import catalogue
from swiftlet.bench.degrade.commands import Commands
from swiftlet.bench.degrade.modes import (
    MAX_SECONDS,
    SECONDS,
    WITHIN_S,
    Mode,
    Modes,
    mode_of,
    read_modes,
    shipped,
    text_of,
)
from swiftlet.bench.degrade.phases import check_scenario, measured, together, way_of
from swiftlet.bench.degrade.whole import stands
from swiftlet.bench.progress import Line
from swiftlet.bench.results import Result, check_appending
from swiftlet.bench.runner import Options
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Api, Target
from swiftlet.client.credentials import V1
from swiftlet.main.commands.advise.measuring import LocalStore, read_store
from swiftlet.main.commands.bench_shared import (
    LOGIN,
    MAX_RUNS,
    api_option,
    append_option,
    ca_file_option,
    code_of,
    credentials_option,
    earlier,
    json_option,
    log_in_at,
    prefix_option,
    stops,
    store_of,
    tell,
)

_POLL_S = 0.5
_seconds = click.FloatRange(0, MAX_SECONDS, min_open=True)


@click.command(short_help="Measure a store while something of it is broken, and mended.")
@click.argument("scenario")
@click.option("--target", help="Where the store is, as for `swiftlet bench run`.")
@api_option
@credentials_option
@click.option(
    "--store",
    "ready_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A store on this machine, by the file that `swiftlet standalone --ready-file` writes: its user logs in, and "
    "commands have its processes' ids as PID_OBJECT_1 and so on.",
)
@click.option("--break", "breaks", metavar="COMMAND", help="Command of a shell that breaks something.")
@click.option("--mend", metavar="COMMAND", help="Command that puts it right; it always runs in the end.")
@click.option(
    "--whole",
    metavar="COMMAND",
    help="Command that exits with 0 as soon as redundancy is complete; it runs again and again after mending.",
)
@click.option("--task", is_flag=True, help="Instead of --mend: what --break begins ends by itself, with a whole store.")
@click.option("--name", default="broken", show_default=True, help="What results call what --break does.")
@click.option("--modes", "modes_file", metavar="FILE", help="File of modes, or the name of one that ships.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this mode of the file; may be repeated.")
@click.option("--seconds", type=_seconds, help=f"Seconds of a phase where a mode says nothing else.  [{SECONDS:g}]")
@click.option(
    "--within",
    "within_s",
    type=_seconds,
    help=f"Seconds that a command may take, and redundancy may need, where a mode says nothing else.  [{WITHIN_S:g}]",
)
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change the scenario.")
@click.option(
    "--runs", type=click.IntRange(1, MAX_RUNS), default=1, show_default=True, help="Repeat each mode so often."
)
@json_option
@click.option(
    "--html", "html_path", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with pictures here."
)
@append_option
@prefix_option
@ca_file_option
def degrade(
    scenario: str,
    target: str | None,
    api: Api,
    credentials: str | None,
    ready_file: Path | None,
    breaks: str | None,
    mend: str | None,
    whole: str | None,
    task: bool,
    name: str,
    modes_file: str | None,
    only: tuple[str, ...],
    seconds: float | None,
    within_s: float | None,
    changes: tuple[str, ...],
    runs: int,
    json_path: Path | None,
    html_path: Path | None,
    append: bool,
    prefix: str | None,
    ca_file: Path | None,
) -> None:
    """Load a store as SCENARIO says, break something of it meanwhile, mend it, and print what clients noticed.

    \b
      swiftlet bench degrade degraded --target http://store:8080 \\
          --break 'kubectl delete pod store-storage-0' --mend 'kubectl wait --for=condition=Ready pod store-storage-0'
      CLUSTER=store swiftlet bench degrade degraded --modes kubernetes --only pod --html page.html

    There are three phases: before, broken, mended. The store is mended whatever happens, also at Ctrl-C and SIGTERM; a
    mode whose break fails ends the command. Exit code 1 when an operation failed.
    """
    defaults = {key: value for key, value in (("seconds", seconds), ("within_s", within_s)) if value is not None}
    fields = {"name": name, "break": breaks, "mend": mend, "whole": whole, "task": task}
    modes = _modes(modes_file, only, defaults, fields)
    chosen = catalogue.find(scenario, changes)
    check_scenario(chosen)
    before = earlier(json_path, html_path, append)
    local = read_store(ready_file) if ready_file is not None else None
    store = _target(target, api, credentials, local, ca_file)
    if before is not None:
        first = {**chosen.document(), **_LOAD, "duration_s": modes[0].seconds}
        check_appending(before, first, store.storage_url)
    found: list[Result] = []
    line = Line()
    try:
        with stops(signal.SIGTERM) as asked:
            options = Options(prefix or f"swiftlet-bench-{secrets.token_hex(4)}", runs, False, None, line.report, asked)
            for number, mode in enumerate(modes):
                if found and found[-1].is_cut_short:
                    break
                found.append(_measured(chosen, store, mode, options, number, ready_file))
    finally:
        line.clear()
        if found:
            tell(together(found, chosen), before, json_path, html_path)
    raise click.exceptions.Exit(code_of(together(found, chosen)))


_LOAD = {"warm_up_s": 0.0, "count": None}
"""What the load of a phase has in place of a scenario's."""


def _measured(
    scenario: Scenario, target: Target, mode: Mode, options: Options, number: int, ready_file: Path | None
) -> Result:
    commands = Commands(mode.within_s, lambda: {} if ready_file is None else _processes(ready_file))
    return measured(scenario, target, way_of(mode, commands), replace(options, prefix=f"{options.prefix}-{number}"))


def _modes(
    file: str | None, only: Sequence[str], defaults: Mapping[str, float], fields: Mapping[str, object]
) -> list[Mode]:
    """Return the modes that options name: those of a file, or the one of the options themselves."""
    given = [f"--{option}" for option in ("break", "mend", "whole", "task") if fields[option]]
    if file is not None:
        if given:
            raise click.UsageError(f"{given[0]} is for one mode without --modes, whose file has commands of its own")
        return read_modes(file, only, **defaults)
    if only:
        raise click.UsageError("--only needs --modes: it names a mode of that file")
    if fields["break"] is None:
        known = ", ".join(shipped())
        raise click.UsageError(f"give --break and --mend, or --modes with a file or one of those that ship: {known}")
    if fields["mend"] is None and not fields["task"]:
        raise click.UsageError("--break needs --mend, which puts it right, or --task where it ends by itself")
    return [mode_of({**fields, **defaults})]


def _target(target: str | None, api: Api, credentials: str | None, local: LocalStore | None, ca: Path | None) -> Target:
    if local is None or target is not None or api != "swift":
        return store_of(target, api, credentials, None if local is None else local.data, ca)
    return log_in_at(V1(auth_url=f"{local.endpoint}{LOGIN}", user=local.user, key=local.key), ca)


def _processes(ready_file: Path) -> dict[str, str]:
    """Return what commands know of a store on this machine, as it is now."""
    local = read_store(ready_file, is_broken=True)
    pids = {name: service["pid"] for name, service in local.services.items() if service["pid"] is not None}
    named = {f"PID_{name.upper().replace('-', '_')}": str(pid) for name, pid in pids.items()}
    return {**named, "PID_SUPERVISOR": str(local.pid), "SWIFTLET_STORE": str(ready_file.absolute())}


@click.command("modes", short_help="List the files of modes that ship, or print one.")
@click.argument("name", required=False)
@click.option("--schema", is_flag=True, help="Print the JSON schema of files of modes instead.")
def modes_command(name: str | None, schema: bool) -> None:
    """List the files of modes that ship, with their modes; with NAME print that one, to be changed."""
    if schema:
        click.echo(json.dumps(Modes.model_json_schema(), indent=2))
    elif name is not None:
        click.echo(text_of(name), nl=False)
    else:
        for one in shipped():
            click.echo(f"{one}: {', '.join(mode.name for mode in read_modes(one))}")


@click.command(short_help="Say whether all copies of a store on this machine are there.")
@click.argument("store", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--since", type=float, help="Only comparisons since then count, in seconds since 1970.  [now]")
@click.option("--wait", "wait_s", type=click.FloatRange(0, MAX_SECONDS), default=0.0, help="Wait so long for it.")
def whole(store: Path, since: float | None, wait_s: float) -> None:
    """Ask the services of STORE, a file of `swiftlet standalone --ready-file`, whether all copies are in their places.

    Exit code 0 when each device was compared since then with nothing left to do, otherwise 1.
    """
    urls = {name: str(service["management_url"]) for name, service in read_store(store, True).services.items()}
    began, deadline = time.time() if since is None else since, time.monotonic() + wait_s
    while not (is_whole := stands(urls, began)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    click.echo("whole" if is_whole else "not whole: a device was not compared since then, or has something left to do")
    raise click.exceptions.Exit(int(not is_whole))
