"""`swiftlet replicator`: the service itself, one round by hand, and what a running one says of itself."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swiftlet.errors import NodeError, SettingsError
from swiftlet.main.commands.launch import launch

F = TypeVar("F", bound=Callable[..., Any])

_MAX_REPORT_BYTES = 1 << 20
_TIMEOUT_S = 10.0

_config = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="SWIFTLET_CONFIG",
    help="Settings file (YAML); see `swiftlet settings`.",
)


def _selecting(command: F) -> F:
    """Add the options that limit a round which is started by hand."""
    options = (
        click.option("--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this one."),
        click.option("--node", help="Only with peers there: a device's name or address, or a node, or its host."),
        click.option("--policy", help="Only this storage policy, by its name."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@_config
@click.option("--parent", type=int, hidden=True, help="End with this process.")
@click.option("--once", is_flag=True, help="One round, as `round` does it, instead of a service.")
@_selecting
@click.pass_context
def replicator(
    context: click.Context,
    config: Path | None,
    parent: int | None,
    once: bool,
    partitions: tuple[int, ...],
    node: str | None,
    policy: str | None,
) -> None:
    """Run the replicator of some devices."""
    context.obj = config
    if context.invoked_subcommand is not None:
        return
    if once:
        raise click.exceptions.Exit(_round(config, partitions, node, policy))
    if partitions or node or policy:
        raise click.UsageError(
            "--partition, --node and --policy need --once: without it the service works on all partitions"
        )
    raise click.exceptions.Exit(launch("replicator", config, parent))


@replicator.command(name="round")
@_config
@_selecting
@click.pass_obj
def one_round(
    outer: Path | None, config: Path | None, partitions: tuple[int, ...], node: str | None, policy: str | None
) -> None:
    """Compare the local devices with their peers once, print what was done, and end.

    Ends with 0 when everything was compared and nothing is left to do. Harmless beside a running replicator. Objects
    with erasure coding are compared and repaired, but for --node; what is found of these stands below "repairs".
    """
    raise click.exceptions.Exit(_round(config or outer, partitions, node, policy))


def _round(config: Path | None, partitions: tuple[int, ...], node: str | None, policy: str | None) -> int:
    from swiftlet.main.services.replicator import run_once
    from swiftlet.settings import ReplicatorSettings, load_settings
    from swiftlet.web.logs import configure_logging

    settings = load_settings(ReplicatorSettings, config)
    configure_logging("replicator", settings.log.level, settings.log.format)
    report = asyncio.run(run_once(settings, partitions, node, policy))
    repairs = {} if report.coded is None else {"repairs": asdict(report.coded)}
    click.echo(json.dumps({**asdict(report.copies), **repairs}))
    return 0 if report.is_whole else 1


@replicator.command()
@_config
@click.option("--address", help="HOST:PORT of the replicator. Default: this machine, and the port of the settings.")
@click.option("--json", "as_json", is_flag=True, help="The report as it came.")
@click.pass_obj
def status(outer: Path | None, config: Path | None, address: str | None, as_json: bool) -> None:
    """Ask a running replicator how far its round is, which nodes it leaves out, and what its last rounds did."""
    report = _ask(address or _own_address(config or outer))
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _print(report, Console(highlight=False))


def _own_address(config: Path | None) -> str:
    from swiftlet.settings import ReplicatorSettings, load_settings

    section = load_settings(ReplicatorSettings, config).replicator
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(section.host, section.host)  # noqa: S104 - compared, not bound
    return f"[{host}]:{section.port}" if ":" in host else f"{host}:{section.port}"


def _ask(address: str) -> dict[str, Any]:
    url = f"http://{address}/statusz"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            report = json.loads(answer.read(_MAX_REPORT_BYTES))
    except (OSError, ValueError) as error:
        raise NodeError(f"{url} gives no report: {getattr(error, 'reason', None) or error}") from error
    if not isinstance(report, dict) or report.get("service") != "replicator":
        raise SettingsError(f"{address} is not a replicator; --address takes the HOST:PORT of one")
    return report


def _print(report: dict[str, Any], console: Console) -> None:
    going_on = report.get("round")
    if going_on:
        left = going_on["remainingS"]
        console.print(
            f"round: {going_on['done']} of {going_on['partitions']} partitions in {going_on['runningForS']} s, "
            + ("no estimate yet" if left is None else f"about {left} s left")
        )
    else:
        console.print("round: none is going on")
    failures = report.get("failures") or {}
    redis = failures.get("redis") or "not used"
    console.print(f"neighbours: {failures.get('peers', 0)}, of which {failures.get('out', 0)} left out; redis: {redis}")
    if problem := failures.get("redisProblem"):
        console.print(f"redis: {problem['reason']}: {problem['message']}", markup=False)
    if failures.get("cutOff"):
        console.print("most neighbours can't be reached: it may be this node that is cut off")
    _table(
        console,
        ("node", "verdict", "out for s", "exceptions", "last one s ago", "others say so"),
        [(node, *found.values()) for node, found in failures.get("nodes", {}).items()],
    )
    rounds = report.get("lastRounds") or []
    shown = ("seconds", "compared", "in_sync", "failed", "skipped", "pushed", "pulled", "removed")
    _table(console, shown, [tuple(one.get(name) for name in shown) for one in rounds])


def _table(console: Console, titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if not rows:
        return
    table = Table(*titles, box=None, header_style="bold")
    for row in rows:
        table.add_row(*(escape(_text(value)) for value in row))
    console.print(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
