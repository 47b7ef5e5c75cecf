"""`swiftlet bench`: measure a store, and compare what was measured."""

from __future__ import annotations

import json
import secrets
import textwrap
from dataclasses import replace
from pathlib import Path

import click

from swiftlet.bench import catalogue, comparison
from swiftlet.bench.errors import BenchError
from swiftlet.bench.page import render
from swiftlet.bench.processes import Watch
from swiftlet.bench.progress import Line
from swiftlet.bench.results import check_appending, read_result
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Api
from swiftlet.bench.verdicts import document, print_comparison
from swiftlet.client.credentials import V1
from swiftlet.main.commands.bench_degrade import degrade, modes_command, whole
from swiftlet.main.commands.bench_shared import (
    LOGIN,
    MAX_RUNS,
    api_option,
    append_option,
    ca_file_option,
    check_writable,
    code_of,
    console,
    credentials_option,
    earlier,
    html_option,
    json_option,
    log_in_at,
    prefix_option,
    runs_option,
    stops,
    store_of,
    tell,
    write,
)
from swiftlet.main.commands.bench_workers import coordinator, worker
from swiftlet.main.commands.standalone.plan import Layout


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
@api_option
@credentials_option
@click.option(
    "--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change the scenario, as closed.connections=8."
)
@runs_option
@json_option
@html_option
@append_option
@prefix_option
@click.option("--keep", is_flag=True, help="Leave the objects in the store.")
@click.option("--pids", default="", help="Processes under test, with commas between: their use is measured, too.")
@click.option(
    "--cluster",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Data directory of a `swiftlet standalone` on this machine: its processes are measured; its user logs in when "
    "the environment has no credentials.",
)
@ca_file_option
def run_scenario(
    scenario: str,
    target: str | None,
    api: Api,
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
    before = earlier(json_path, html_path, append)
    watch = _watch(pids, cluster)
    store = store_of(target, api, credentials, cluster, ca_file)
    if before is not None:
        check_appending(before, chosen.document(), store.storage_url)
    line = Line()
    chosen_prefix = prefix or f"swiftlet-bench-{secrets.token_hex(4)}"
    try:
        with stops() as asked:
            result = run(chosen, store, Options(chosen_prefix, runs, keep, watch, line.report, asked))
    finally:
        line.clear()
    tell(result, before, json_path, html_path)
    raise click.exceptions.Exit(code_of(result))


@bench.command(short_help="Write the page of a result.")
@click.argument("result", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("html", type=click.Path(dir_okay=False, path_type=Path))
def page(result: Path, html: Path) -> None:
    """Write the page with table and plots of the file RESULT, which --json has written, to the file HTML."""
    write(html, render(read_result(result)))


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
        print_comparison(rows, console())
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
@click.option(
    "--coded",
    metavar="DATA+PARITY",
    help="Measure a store whose default policy has this erasure coding, and add to the costs in OUTPUT.",
)
def costs(store: Path, output: Path, runs: int, coded: str | None) -> None:
    """Measure what each operation takes of each service of STORE, a file of `swiftlet standalone --ready-file`.

    \b
      swiftlet standalone --data /srv/try --ready-file /srv/try.json &
      swiftlet bench costs /srv/try.json --output costs.json

    \b
      swiftlet standalone --data /srv/coded --policies coded=4+2,usual --ready-file /srv/coded.json &
      swiftlet bench costs /srv/coded.json --coded 4+2 --output costs.json

    It takes a quarter of an hour and needs some gigabytes of space, which it gives back.
    """
    from swiftlet.advice.costs import document as costs_document
    from swiftlet.advice.costs import read_costs
    from swiftlet.advice.errors import AdviceError
    from swiftlet.main.commands.advise.measuring import measure, measure_coded, read_store

    scheme = None if coded is None else _scheme(coded)
    before = None
    if scheme is not None:
        try:
            before = read_costs(output.read_bytes(), str(output))
        except OSError as error:
            raise click.ClickException(
                f"{output} can't be read: {error.strerror}; measure a store with copies first, without --coded"
            ) from error
        except AdviceError as error:
            raise click.ClickException(str(error)) from error
    check_writable(output)
    local = read_store(store)
    target = log_in_at(V1(auth_url=f"{local.endpoint}{LOGIN}", user=local.user, key=local.key), None)

    def say(text: str) -> None:
        click.echo(text, err=True)

    if scheme is None or before is None:
        found = measure(local, target, runs, say)
    else:
        found = replace(before, coded=measure_coded(local, target, *scheme, runs, say))
    write(output, json.dumps(costs_document(found), indent=1) + "\n")


def _scheme(text: str) -> tuple[int, int]:
    """Return the fragments with data and with parity."""
    data, plus, parity = text.partition("+")
    if not (plus and data.isdecimal() and parity.isdecimal() and int(data) > 1 and int(parity) > 0):
        raise click.BadParameter(f"must be DATA+PARITY such as 4+2, not {text!r}", param_hint="--coded")
    return int(data), int(parity)


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


bench.add_command(coordinator)
bench.add_command(worker)
bench.add_command(degrade)
bench.add_command(modes_command)
bench.add_command(whole)
