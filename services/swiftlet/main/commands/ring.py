"""`swiftlet ring`: make, change and inspect rings from the command line.

A ring lives in two files: the builder (devices, settings, history) that these commands change, and the ring that
servers load, written next to it by `build` and `rebalance`.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from swiftlet.errors import SwiftletError
from swiftlet.names import HashPath
from swiftlet.ring import Device, RebalanceResult, Ring, RingBuilder, RingError, RingReport, report
from swiftlet.ring import codec as codecs

_SPEC = re.compile(
    r"(?P<region>[^/]+)/(?P<zone>[^/]+)/(?P<node>[^/]+)/(?P<host>\[[0-9A-Fa-f:.]+\]|[^/:]+):(?P<port>[0-9]+)"
    r"/(?P<device>[^/:]+):(?P<weight>[0-9.]+(?:[eE][+-]?[0-9]+)?)"
)
_SPEC_HELP = "REGION/ZONE/NODE/HOST:PORT/DEVICE:WEIGHT"
_REQUIRED = ("host", "port", "device", "region", "zone", "weight")
_FIELDS = (*_REQUIRED, "node", "name")
_LISTED = 10
"""Handoffs that `which-node-holds` prints unless told otherwise."""

_file = click.Path(path_type=Path, dir_okay=False)
_builder_argument = click.argument("builder_file", metavar="BUILDER", type=_file)
_ring_argument = click.argument("ring_file", metavar="RING", type=_file)
_ring_option = click.option("--ring", "ring_path", type=_file, help="Ring file to write.  [BUILDER with suffix .ring]")
_device_option = click.option(
    "--device", "specs", metavar=_SPEC_HELP, multiple=True, help="A device; may be given several times."
)
_devices_option = click.option(
    "--devices", "list_file", type=_file, help="YAML or JSON list of devices: host, port, device, region, zone, weight."
)
_hours_option = click.option(
    "--now-hours", type=click.IntRange(1, 0xFFFFFFFF), hidden=True, help="The time, in hours since the epoch."
)


@click.group(short_help="Make, change and inspect rings.", context_settings={"help_option_names": ["-h", "--help"]})
def ring() -> None:
    """Make, change and inspect rings.

    \b
    swiftlet ring build object.builder --part-power 10 --replicas 3 --devices devices.yaml
    swiftlet ring add-device object.builder --device r1/z4/n7/n7.example:6200/sda:100
    swiftlet ring rebalance object.builder
    swiftlet ring show object.ring

    Changes to devices, weights and replicas take effect with the next `rebalance`.
    """


@ring.command()
@_builder_argument
@click.option("--part-power", type=click.IntRange(1, 32), required=True, help="The ring has 2^N partitions; fixed.")
@click.option("--replicas", type=click.FloatRange(1, 32), default=3.0, show_default=True, help="May be fractional.")
@click.option(
    "--min-part-hours",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Hours between two moves of one partition.",
)
@click.option(
    "--overload",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="How far devices may exceed their share to keep replicas apart; 0.1 = 10 %.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Makes rings of the same devices differ.")
@_device_option
@_devices_option
@_ring_option
@click.option("--force", is_flag=True, help="Replace an existing builder: a new ring, all data would move.")
@_hours_option
def build(
    builder_file: Path,
    part_power: int,
    replicas: float,
    min_part_hours: int,
    overload: float,
    seed: int,
    specs: tuple[str, ...],
    list_file: Path | None,
    ring_path: Path | None,
    force: bool,
    now_hours: int | None,
) -> None:
    """Make a new ring and write BUILDER and the ring file.

    \b
    swiftlet ring build object.builder --part-power 10 --devices devices.yaml --overload 0.1
    swiftlet ring build object.builder --part-power 8 --replicas 2 \\
        --device r1/z1/n1/127.0.0.1:6201/d1:100 --device r1/z2/n2/127.0.0.1:6202/d2:100
    """
    if builder_file.exists() and not force:
        raise click.ClickException(f"{builder_file} exists; use `rebalance` to change it or --force to start anew")
    with _errors():
        builder = RingBuilder(part_power, replicas, min_part_hours, overload, seed)
        _add(builder, specs, list_file)
        if not builder.devices:
            raise RingError("no devices are given; use --devices FILE or --device " + _SPEC_HELP)
    _rebalance(builder, builder_file, ring_path, False, now_hours)


@ring.command("add-device")
@_builder_argument
@_device_option
@_devices_option
def add_device(builder_file: Path, specs: tuple[str, ...], list_file: Path | None) -> None:
    """Add devices to BUILDER.

    \b
    swiftlet ring add-device object.builder --device r1/z4/n7/n7.example:6200/sda:100
    """
    with _changing(builder_file) as builder:
        added = _add(builder, specs, list_file)
        if not added:
            raise RingError("no devices are given; use --devices FILE or --device " + _SPEC_HELP)
        for device in added:
            click.echo(f"device {device.id}: {device.name} added; rebalance to use it")


@ring.command("remove-device")
@_builder_argument
@click.argument("device")
def remove_device(builder_file: Path, device: str) -> None:
    """Remove a device that is lost or empty from BUILDER.

    DEVICE is an id, a name or HOST:PORT/DEVICE. Its replicas move at the next rebalance, whatever min_part_hours
    says. To take a healthy device out, set its weight to 0 and rebalance until it is empty first.

    \b
    swiftlet ring remove-device object.builder 12
    """
    with _changing(builder_file) as builder:
        removed = builder.remove_device(_find(builder, device).id)
        click.echo(f"device {removed.id}: {removed.name} removed; rebalance to replace its replicas")


@ring.command("set-weight")
@_builder_argument
@click.argument("device")
@click.argument("weight", type=float)
def set_weight(builder_file: Path, device: str, weight: float) -> None:
    """Change the weight of a device in BUILDER; 0 drains it.

    DEVICE is an id, a name or HOST:PORT/DEVICE.

    \b
    swiftlet ring set-weight object.builder n7.example:6200/sda 200
    """
    with _changing(builder_file) as builder:
        changed = builder.set_weight(_find(builder, device).id, weight)
        click.echo(f"device {changed.id}: {changed.name} has weight {changed.weight:g} now; rebalance to apply it")


@ring.command("set-replicas")
@_builder_argument
@click.argument("replicas", type=float)
def set_replicas(builder_file: Path, replicas: float) -> None:
    """Change the number of replicas, which may be fractional.

    \b
    swiftlet ring set-replicas object.builder 3.25
    """
    with _changing(builder_file) as builder:
        builder.set_replicas(replicas)
        click.echo(f"{replicas:g} replicas; rebalance to apply it")


@ring.command()
@_builder_argument
@_ring_option
@click.option("--ignore-min-part-hours", is_flag=True, help="Only when all replication is known to be done.")
@_hours_option
def rebalance(builder_file: Path, ring_path: Path | None, ignore_min_part_hours: bool, now_hours: int | None) -> None:
    """Assign partitions to BUILDER's devices anew, moving as little as possible, and write the ring.

    \b
    swiftlet ring rebalance object.builder
    """
    with _errors():
        builder = codecs.load_builder(builder_file)
    _rebalance(builder, builder_file, ring_path, ignore_min_part_hours, now_hours)


@ring.command()
@_ring_argument
def show(ring_file: Path) -> None:
    """Show settings, quality and devices of a ring or builder file.

    \b
    swiftlet ring show object.ring
    """
    found, measured = _measured(ring_file)
    _summary(found, measured)
    table = Table(box=None, header_style="bold")
    for title in ("id", "name", "region", "zone", "node", "address"):
        table.add_column(title, overflow="fold")
    for title in ("weight", "replicas", "wanted", "off by %"):
        table.add_column(title, justify="right", no_wrap=True)
    for load in measured.devices:
        device = load.device
        table.add_row(
            str(device.id),
            *(device.name, device.region, device.zone, device.node, device.address),
            *(f"{device.weight:g}", str(load.replicas), f"{load.wanted:.1f}", f"{load.deviation_percent:+.2f}"),
        )
    _console().print(table)


@ring.command()
@_ring_argument
def dispersion(ring_file: Path) -> None:
    """Show how well a ring keeps replicas apart and how evenly devices share partitions with each other.

    \b
    swiftlet ring dispersion object.ring
    """
    found, measured = _measured(ring_file)
    _summary(found, measured)
    click.echo(f"replicas nearer to each other than necessary: {measured.misplaced}")
    table = Table("pairs within one", box=None, header_style="bold")
    for title in ("pairs", "partitions shared: mean", "most", "max/mean by weight"):
        table.add_column(title, justify="right")
    for level in measured.levels:
        table.add_row(level.level, str(level.pairs), f"{level.mean:.2f}", str(level.most), f"{level.max_over_mean:.3f}")
    _console().print(table)


@ring.command("which-node-holds")
@_ring_argument
@click.argument("account")
@click.argument("container", required=False)
@click.argument("obj", metavar="[OBJECT]", required=False)
@click.option("--hash-prefix", default="", envvar="SWIFTLET_HASH_PREFIX", help="The cluster's prefix to names.")
@click.option("--hash-suffix", default="", envvar="SWIFTLET_HASH_SUFFIX", help="The cluster's suffix to names.")
@click.option("--handoffs", type=click.IntRange(0), default=_LISTED, show_default=True, help="How many to print.")
def which_node_holds(
    ring_file: Path,
    account: str,
    container: str | None,
    obj: str | None,
    hash_prefix: str,
    hash_suffix: str,
    handoffs: int,
) -> None:
    """Show which devices hold an account, a container or an object, and who stands in for them.

    \b
    swiftlet ring which-node-holds object.ring AUTH_test photos 2024/cat.jpg
    """
    found = _open(ring_file)
    try:
        digest = HashPath(hash_prefix.encode(), hash_suffix.encode())(account, container, obj)
    except UnicodeEncodeError as error:
        raise click.ClickException("names, --hash-prefix and --hash-suffix must be valid UTF-8") from error
    partition = found.partition_of(digest)
    click.echo(f"hash       {digest.hex()}")
    click.echo(f"partition  {partition}")
    holders = found.primaries(partition)
    for index, device in enumerate(holders):
        click.echo(f"primary    {index}  {_describe(device)}")
    clockwise = [device.name for device in found.replica_ring(partition)]
    click.echo("ring       " + " -> ".join([*clockwise, clockwise[0]]))
    for index, device in enumerate(found.handoffs(partition)):
        if index == handoffs:
            break
        click.echo(f"handoff    {index}  {_describe(device)}")


@contextmanager
def _errors() -> Iterator[None]:
    """Domain and file errors as one line."""
    try:
        yield
    except (RingError, SwiftletError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error


@contextmanager
def _changing(path: Path) -> Iterator[RingBuilder]:
    """A builder that is written back when the block ends without an error."""
    with _errors():
        builder = codecs.load_builder(path)
        yield builder
        codecs.save_builder(builder, path)


def _open(path: Path) -> Ring:
    with _errors():
        data = path.read_bytes()
        return codecs.decode_builder(data).ring if codecs.is_builder(data) else codecs.decode(data)


def _measured(path: Path) -> tuple[Ring, RingReport]:
    found = _open(path)
    with _errors():
        return found, report(found)


def _find(builder: RingBuilder, text: str) -> Device:
    for device in builder.devices:
        if device is not None and text in (device.name, device.address):
            return device
    if text.isdecimal():
        return builder.device(int(text))
    raise RingError(f"device {text!r} is not in the builder; `show` lists ids, names and addresses")


def _add(builder: RingBuilder, specs: tuple[str, ...], list_file: Path | None) -> list[Device]:
    fields = [_parse_spec(spec) for spec in specs]
    if list_file is not None:
        fields += _read_list(list_file)
    return [builder.add_device(**item) for item in fields]


def _parse_spec(spec: str) -> dict[str, Any]:
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise RingError(f"--device {spec!r} does not look like {_SPEC_HELP}")
    item: dict[str, Any] = match.groupdict()
    return _typed(item, f"--device {spec!r}")


def _read_list(path: Path) -> list[dict[str, Any]]:
    try:
        content = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RingError(f"{path} is neither YAML nor JSON: {' '.join(str(error).split())}") from error
    items = content.get("devices") if isinstance(content, dict) else content
    if not isinstance(items, list):
        raise RingError(f"{path} must hold a list of devices, or one under the key 'devices'")
    return [_check_item(item, f"{path}: device {number}") for number, item in enumerate(items, 1)]


def _check_item(item: object, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise RingError(f"{where} is not a mapping with the fields {', '.join(_REQUIRED)}")
    unknown = [str(key) for key in item if key not in _FIELDS]
    if unknown:
        raise RingError(f"{where} has the unknown field {unknown[0]!r}; known are {', '.join(_FIELDS)}")
    missing = [key for key in _REQUIRED if item.get(key) is None]
    if missing:
        raise RingError(f"{where} lacks the field {missing[0]!r}")
    return _typed(dict(item), where)


def _typed(item: dict[str, Any], where: str) -> dict[str, Any]:
    """Fields with their types; numbers are fine as names (a zone called 1)."""
    for field, convert in (("port", int), ("weight", float)):
        try:
            item[field] = convert(item[field])
        except (TypeError, ValueError) as error:
            raise RingError(f"{where}: {field} {item[field]!r} is not a number") from error
    for field in set(item) - {"port", "weight"}:
        item[field] = str(item[field])
    return item


def _rebalance(
    builder: RingBuilder, builder_file: Path, ring_path: Path | None, ignore_min_part_hours: bool, now_hours: int | None
) -> None:
    target = builder_file.with_suffix(".ring") if ring_path is None else ring_path
    if target == builder_file:
        raise click.ClickException(f"--ring {target} is the builder file; give the ring a name of its own")
    hours = int(time.time() // 3600) if now_hours is None else now_hours
    with _errors():
        with _progress() as step:
            result = builder.rebalance(hours, ignore_min_part_hours=ignore_min_part_hours, progress=step)
        # First the builder: a ring that its builder does not know would be lost with the next rebalance.
        codecs.save_builder(builder, builder_file)
        codecs.save(builder.ring, target)
    _tell(result, builder, target)


def _tell(result: RebalanceResult, builder: RingBuilder, target: Path) -> None:
    click.echo(f"ring version {result.version} written to {target}")
    click.echo(f"replicas moved: {result.moved} (in {result.moved_partitions} of {1 << builder.part_power} partitions)")
    if result.assigned or result.dropped:
        click.echo(f"replicas new: {result.assigned}, dropped: {result.dropped}")
    click.echo(f"balance {result.balance:.2f} %, dispersion {result.dispersion:.2f} %")
    if result.surplus:
        hours = builder.min_part_hours
        click.echo(
            f"{result.surplus} replicas could not be moved yet; rebalance again in {hours} h, when the "
            "others have been moved"
        )


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on the standard error stream when that is a terminal."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("assigning replicas"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _summary(found: Ring, measured: RingReport) -> None:
    click.echo(
        f"version {found.version}, {found.partition_count} partitions, {found.replica_count:g} replicas, "
        f"{len(measured.devices)} devices"
    )
    click.echo(
        f"balance {measured.balance:.2f} %, dispersion {measured.dispersion:.2f} %, "
        f"pair spread {measured.pair_spread:.3f}"
    )


def _describe(device: Device) -> str:
    return f"{device.address}  id {device.id}  {device.name}  ({device.region}/{device.zone}/{device.node})"


def _console() -> Console:
    """Full width when the output is not a terminal, so that nothing is cut off."""
    console = Console(file=sys.stdout)
    return console if console.is_terminal else Console(file=sys.stdout, width=200)
