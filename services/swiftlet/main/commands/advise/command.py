"""`swiftlet advise`: which store a load needs, and which pitfalls one falls into."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click
import yaml

from swiftlet.advice.arrangements import kept_otherwise, plans
from swiftlet.advice.cluster import ClusterShape
from swiftlet.advice.costs import UnitCosts, read_costs, shipped
from swiftlet.advice.errors import AdviceError
from swiftlet.advice.load import Load
from swiftlet.advice.manifests import manifests
from swiftlet.advice.pitfalls.checks import pitfalls
from swiftlet.advice.pitfalls.subject import WARNING, Subject
from swiftlet.advice.text import costs_line, finding_lines, load_lines, plan_lines
from swiftlet.main.commands.advise.cluster_file import read_clusters
from swiftlet.main.commands.advise.recorded import load_of
from swiftlet.main.commands.advise.scraping import watch
from swiftlet.main.commands.advise.workload_file import Workload, read_workload

MAX_COSTS_BYTES = 1 << 20
"""Bytes of a file of unit costs."""
MAX_METRICS = 1000
"""Services whose metrics are read."""
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Say which store a load needs, and what is wrong with one.")
@click.argument("workload", required=False, type=_FILE)
@click.option("--hardware", type=_FILE, help="File with the hardware, in place of that of WORKLOAD.")
@click.option("--run", "result", type=_FILE, help="Result of `swiftlet bench run --json`: sizes and rates are its.")
@click.option("--metrics", multiple=True, metavar="URL", help="Address of a running service's metrics: rates are its.")
@click.option("--seconds", type=click.FloatRange(1, 3600), default=60, show_default=True, help="Between two readings.")
@click.option(
    "--times", type=click.FloatRange(0.001, 1e6), default=1.0, show_default=True, help="So many times as much."
)
@click.option("--costs", "costs_path", type=_FILE, help="Unit costs that `swiftlet bench costs` has measured.")
@click.option("--cluster", type=_FILE, help="Look for pitfalls in the StorageClusters of this file instead.")
@click.option("--name", default="store", show_default=True, help="Of the StorageCluster.")
@click.option("--namespace", help="Of the StorageCluster.")
@click.option("--json", "as_json", is_flag=True, help="Print findings or custom resources as JSON alone.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of workload files.")
def advise(
    workload: Path | None,
    hardware: Path | None,
    result: Path | None,
    metrics: tuple[str, ...],
    seconds: float,
    times: float,
    costs_path: Path | None,
    cluster: Path | None,
    name: str,
    namespace: str | None,
    as_json: bool,
    schema: bool,
) -> None:
    """Print the StorageCluster and StoragePolicy that the load of WORKLOAD needs, with the reasons as comments.

    \b
      swiftlet advise photographs.yaml > store.yaml
      swiftlet advise photographs.yaml --run small-upload.json --times 10
      swiftlet advise --cluster store.yaml
      swiftlet advise --cluster store.yaml photographs.yaml

    With --cluster: the pitfalls of what there is, each with the field to change; exit code 1 when one is a warning.
    """
    if schema:
        click.echo(json.dumps(Workload.model_json_schema(), indent=2))
        return
    if workload is None and (cluster is None or result or metrics):
        raise click.UsageError("name the file of a workload; `swiftlet advise --schema` prints what may be in it")
    if result is not None and metrics:
        raise click.UsageError("--run and --metrics exclude each other: both say how much is asked")
    if len(metrics) > MAX_METRICS:
        raise click.UsageError(f"--metrics may be given {MAX_METRICS} times")
    costs = shipped() if costs_path is None else _costs(costs_path)
    given = read_workload(workload, hardware) if workload is not None else None
    seen = load_of(result) if result is not None else watch(metrics, seconds) if metrics else None
    load = given.load(seen, times) if given is not None else None
    if cluster is not None:
        found = [(shape, _subject(shape, costs, given, load)) for shape in read_clusters(cluster)]
        raise click.exceptions.Exit(_print_findings(found, as_json))
    assert given is not None
    assert load is not None
    _print_plan(given, load, costs, name, namespace, as_json)


def _costs(path: Path) -> UnitCosts:
    try:
        if path.stat().st_size > MAX_COSTS_BYTES:
            raise AdviceError(f"{path} is too large: it may have {MAX_COSTS_BYTES:,} bytes")
        return read_costs(path.read_bytes(), str(path))
    except OSError as error:
        raise AdviceError(f"{path} can't be read: {error.strerror or error}") from error


def _subject(shape: ClusterShape, costs: UnitCosts, given: Workload | None, load: Load | None) -> Subject:
    if given is None or load is None:
        return Subject(shape, costs)
    subject = Subject(shape, costs, load, given.rules())
    if given.hardware is None:
        return subject
    hardware = given.hardware.value()
    disks = {one.storage_class: one.value() for one in given.hardware.disks}
    return replace(subject, disks=disks, balancer_bytes_per_s=hardware.balancer_bytes_per_s, speed=hardware.speed)


def _print_findings(found: Iterable[tuple[ClusterShape, Subject]], as_json: bool) -> int:
    code = 0
    for shape, subject in found:
        findings = pitfalls(subject)
        code = max(code, int(any(one.severity == WARNING for one in findings)))
        if as_json:
            for one in findings:
                fields = ("severity", "pitfall", "field", "reason", "change")
                click.echo(json.dumps({"cluster": shape.name, **{field: getattr(one, field) for field in fields}}))
            continue
        click.echo(f"StorageCluster {shape.name}: {len(findings) or 'no'} pitfall{'s' if len(findings) != 1 else ''}")
        for line in finding_lines(findings):
            click.echo(line)
    return code


def _print_plan(given: Workload, load: Load, costs: UnitCosts, name: str, namespace: str | None, as_json: bool) -> None:
    hardware, rules = given.store_of(), given.rules()
    chosen, *others = plans(load, hardware, costs, rules)
    resources = manifests(chosen, name, namespace)
    if as_json:
        for one in resources:
            click.echo(json.dumps(one))
        return
    otherwise = kept_otherwise(load, hardware, costs, rules)
    for line in (given.title, "", *load_lines(load), *plan_lines(chosen, others, otherwise), "", costs_line(costs)):
        click.echo(f"# {line}".rstrip())
    for one in resources:
        click.echo("---")
        click.echo(yaml.safe_dump(one, sort_keys=False, default_flow_style=None), nl=False)
