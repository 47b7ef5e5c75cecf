"""`swiftlet policy move`: brings containers to another storage policy, and tells how far that is."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from swiftlet.api.http.reserved import main_container
from swiftlet.errors import NotFound, SettingsError, SwiftletError
from swiftlet.main.background import in_background
from swiftlet.main.commands.policy_move import Moving, Wanted, checked, moving
from swiftlet.model import DatabaseName
from swiftlet.policy_mover.container_pass import PassReport
from swiftlet.policy_mover.mover import MAX_TOGETHER, TOGETHER, Round, Told
from swiftlet.policy_mover.phases import Standing
from swiftlet.policy_moves import Phase
from swiftlet.quantities import quantity_bytes
from swiftlet.settings import ProxySettings, load_settings
from swiftlet.units import size_text
from swiftlet.web.logs import configure_logging

PROGRESS_S = 10.0
"""Seconds between two lines about the container whose objects are being moved."""
NAMED = 10
"""Objects that could not be moved that are named in plain text; with --json all are."""


def _rate(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        rate = quantity_bytes(value)
    except SettingsError as error:
        raise click.BadParameter(str(error)) from error
    if rate < 1:
        raise click.BadParameter("no bytes per second would move nothing; leave --rate out for no limit")
    return rate


def _urls(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        try:
            parts = urlsplit(value)
            is_base = parts.scheme in {"http", "https"} and parts.hostname and parts.port and parts.path in {"", "/"}
        except ValueError:
            is_base = False
        if not is_base:
            raise click.BadParameter(f"{value!r} is no base URL such as http://10.0.0.7:8081")
    return tuple(value.rstrip("/") for value in values)


@click.command(short_help="Move containers to another policy.")
@click.argument("source")
@click.argument("target")
@click.option("--account", help="Only the containers of this account.")
@click.option("--container", help="Only this container of --account, with its old versions.")
@click.option("--rate", callback=_rate, help="Bytes per second to copy at most, such as 50M.")
@click.option("--status", is_flag=True, help="Move nothing: tell how far each container is.")
@click.option("--leave-moving", is_flag=True, help="End when all objects are moved, and settle in a later run.")
@click.option("--again", is_flag=True, help="Look through settled containers, too, for rows that came late.")
@click.option(
    "--together",
    type=click.IntRange(1, MAX_TOGETHER),
    default=TOGETHER,
    show_default=True,
    help="Containers that are prepared at the same time.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    callback=_urls,
    help="Base URL of the status report of proxies, metadata servers and replicators, such as http://10.0.0.7:8081; "
    "a name with several addresses stands for all of them. May be repeated.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="SWIFTLET_CONFIG",
    help="Settings file (YAML) of a proxy; see `swiftlet settings`.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
def move(
    source: str,
    target: str,
    account: str | None,
    container: str | None,
    rate: int | None,
    status: bool,
    leave_moving: bool,
    again: bool,
    together: int,
    services: tuple[str, ...],
    config: Path | None,
    as_json: bool,
) -> None:
    """Move the containers of the policy SOURCE to the policy TARGET, with their names, while clients use them.

    Each container is announced, then its objects are moved one after the other, and after a day it is settled, when no
    upload that began before can still end in the old policy. The command may be ended at any time and run again.

    Ends with 1 when something could not be moved: run it again.
    """
    if container is not None and account is None:
        raise click.BadParameter("names a container of --account; give that as well", param_hint="--container")
    settings = load_settings(ProxySettings, config)
    checked(settings.load_policies(), source, target)
    configure_logging("policy", "warning", settings.log.format)
    wanted = Wanted(source, target, account, container, rate, services, together, again)
    printed = Printer(as_json)
    if status:
        is_done = asyncio.run(_status(settings, wanted, printed))
    else:
        is_done = asyncio.run(_move(settings, wanted, printed, leave_moving))
    raise click.exceptions.Exit(0 if is_done else 1)


async def _move(settings: ProxySettings, wanted: Wanted, printed: Printer, leave: bool) -> bool:
    async with moving(settings, wanted, printed.tell) as at_work:
        await at_work.services_s()

        async def progress() -> None:
            while True:
                await asyncio.sleep(PROGRESS_S)
                if at_work.mover.running is not None:
                    printed.progress(*at_work.mover.running)

        async with in_background(progress):
            done = await at_work.mover.run(at_work.listed, leave=leave)
    printed.end(done)
    return not done.failed


async def _status(settings: ProxySettings, wanted: Wanted, printed: Printer) -> bool:
    """Tell where each container stands; return whether all could be told."""
    whole = True
    async with moving(settings, wanted, printed.tell) as at_work:
        async for container in at_work.listed():
            try:
                printed.tell(await _looked(at_work, container))
            except NotFound:
                continue
            except SwiftletError as problem:
                printed.tell(Told(container, problem=str(problem)))
                whole = False
    return whole


async def _looked(at_work: Moving, container: DatabaseName) -> Told:
    standing = await at_work.phases.standing(container)
    if standing.move is None or standing.phase is Phase.ANNOUNCED:
        return Told(container, standing)
    report = PassReport()
    await at_work.make_pass(container, standing.move, report).look()
    return Told(container, standing, report)


class Printer:
    """Prints what is new about containers, as text or as JSON."""

    def __init__(
        self, as_json: bool, now_s: Callable[[], float] = time.time, echo: Callable[..., None] = click.echo
    ) -> None:
        """`now_s` returns seconds since the epoch."""
        self._as_json, self._now_s, self._echo = as_json, now_s, echo

    def tell(self, told: Told) -> None:
        """Print what is new about a container."""
        if self._as_json:
            self._echo(json.dumps(fields_of(told)))
            return
        said = [named(told.container)]
        if told.standing is not None:
            said.append(self._phase(told.standing))
        if told.report is not None:
            said.append(counted(told.report))
        if told.problem is not None:
            said.append(f"error: {told.problem}")
        self._echo("\t".join(said), err=told.problem is not None)
        if told.report is not None:
            for name, why in list(told.report.failed.items())[:NAMED]:
                self._echo(f"{named(told.container)}\tnot moved: {name}: {why}", err=True)

    def progress(self, container: DatabaseName, report: PassReport) -> None:
        """Print how far the pass over a container is."""
        self._echo(f"{named(container)}\t{counted(report)} so far", err=True)

    def end(self, done: Round) -> None:
        """Print what came of all."""
        if self._as_json:
            totals = {"settled": done.settled, "copied": done.copied, "failed": done.failed}
            self._echo(json.dumps({**totals, "settlesAt": done.settles_s or None}))
            return
        self._echo(f"containers: {done.settled} settled, {done.copied} to be settled, {done.failed} failed", err=True)
        if done.copied:
            when = _time(done.settles_s)
            self._echo(f"the objects are moved; run the command again after {when} to settle the rest", err=True)
        if done.failed:
            self._echo("error: not everything could be moved; what is left is still in use where it is", err=True)

    def _phase(self, standing: Standing) -> str:
        if standing.phase is None:
            return "not begun"
        if standing.phase is Phase.ANNOUNCED:
            return f"announced until {_time(standing.next_s)} or later"
        if standing.phase is Phase.SETTLED:
            return "settled"
        begins = "" if standing.is_over(self._now_s()) else f", objects from {_time(standing.next_s)}"
        assert standing.settles_s is not None
        return f"moving{begins}, can be settled from {_time(standing.settles_s)}"


def named(container: DatabaseName) -> str:
    """Return account and container; a hidden one is explained by the container that it belongs to."""
    name = container.container or ""
    return f"{container.account}\t" + (f"versions of {main_container(name)}" if name.startswith("\0") else name)


def counted(report: PassReport) -> str:
    """Return what a pass has done."""
    said = [f"{report.rows} objects"]
    if report.left:
        said.append(f"{report.left} not moved yet")
    if report.moved or report.bytes:
        said.append(f"{report.moved} moved ({size_text(report.bytes)})")
    if report.completed:
        said.append(f"{report.completed} deletions completed")
    if report.failed:
        said.append(f"{len(report.failed)} failed")
    return ", ".join(said)


def fields_of(told: Told) -> dict[str, Any]:
    """Return the same in the form of the command's JSON; times are seconds since the epoch."""
    name = told.container.container or ""
    hidden = name.startswith("\0")
    fields: dict[str, Any] = {
        "account": told.container.account,
        "container": main_container(name) if hidden else name,
        "versions": hidden,
    }
    if told.standing is not None:
        phase = told.standing.phase
        waits = phase in (Phase.ANNOUNCED, Phase.MOVING)
        fields |= {
            "phase": None if phase is None else phase.value,
            "nextAt": told.standing.next_s if waits else None,
            "settlesAt": told.standing.settles_s,
        }
    if (report := told.report) is not None:
        counts = ("rows", "markers", "left", "moved", "bytes", "completed", "failed", "unheard")
        fields |= {count: getattr(report, count) for count in counts}
    if told.problem is not None:
        fields["problem"] = told.problem
    return fields


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
