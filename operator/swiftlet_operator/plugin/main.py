"""The `kubectl-swiftlet` command, which kubectl runs for `kubectl swiftlet`."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swiftlet import __version__
from swiftlet_operator.plugin import (
    advise,
    backup,
    bench,
    bundle,
    client_config,
    drain,
    policy,
    render,
    restore,
    sealed_file,
)
from swiftlet_operator.plugin.archive import BackupError
from swiftlet_operator.plugin.bench_manifests import Run
from swiftlet_operator.plugin.findings import WARNING, findings, worst
from swiftlet_operator.plugin.gather import clusters_of, look
from swiftlet_operator.plugin.kubectl import Kubectl, KubectlError, without_none

_MOST = 10_000
_CPU = re.compile(r"[1-9][0-9]{0,5}m?|[0-9]{1,3}\.[0-9]{1,3}")
_TARGET = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?(/(d[0-9]{1,2}|db))?")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand. Returns 0, 1 when something is wrong, or 2 for a wrong command line."""
    options = parser().parse_args(arguments)
    flags = [("context", options.context), ("kubeconfig", options.kubeconfig)]
    kubectl = Kubectl(without_none([f"--{name}={value}" if value else None for name, value in flags]))
    run: Callable[[Kubectl, argparse.Namespace], int] = options.run
    try:
        return run(kubectl, options)
    except (KubectlError, BackupError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    # Options are understood before and after the command; those missing after it must not undo those before it.
    common = _where_options(argparse.SUPPRESS)
    top = argparse.ArgumentParser(
        prog="kubectl swiftlet",
        description="Swiftlet's clusters, as kubectl sees them.",
        parents=[_where_options(None)],
    )
    top.add_argument("--version", action="version", version=f"swiftlet {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("status", _status, "conditions, pods, rings, users, and the tree of zones, nodes and devices"),
        ("rings", _rings, "every device of every ring: weight, share of the partitions, state"),
        ("health", _health, "what is wrong, then every service; exit code 1 when something is"),
    ):
        command = commands.add_parser(name, parents=[common], help=text, description=text)
        command.add_argument("cluster", nargs="?", help="all of the namespace when not given")
        command.add_argument("-A", "--all-namespaces", action="store_true")
        command.set_defaults(run=run)
    text = "take all data away from pods or devices (spec.drain); they stay where they are"
    command = commands.add_parser("drain", parents=[common], help=text, description=text)
    command.add_argument("targets", nargs="+", type=_target, metavar="POD[/DEVICE]")
    command.add_argument("--undo", action="store_true", help="let them hold data again")
    command.add_argument("--wait", action="store_true", help="until they are reported empty")
    command.add_argument("--timeout", type=float, default=86400.0, metavar="SECONDS", help="of --wait (default a day)")
    command.set_defaults(run=_drain)
    text = "the containers that use a storage policy, and whether it can go"
    command = commands.add_parser("policy", parents=[common], help=text, description=text)
    command.add_argument("name", help="of the StoragePolicy")
    command.add_argument("--limit", type=_limit, default=100, metavar="N", help="containers to list (default 100)")
    command.add_argument("--after", metavar="PLACE", help="begin where a list that was cut short ended")
    command.set_defaults(run=_policy)
    text = "how a StorageUser's clients reach the store: for a pod, for a shell, or a Secret for another namespace"
    command = commands.add_parser("client-config", parents=[common], help=text, description=text)
    command.add_argument("user", help="name of the StorageUser")
    command.add_argument(
        "-o",
        "--output",
        choices=("pod", "env", "secret"),
        default="pod",
        help="pod (default): a part of a pod's spec, without the key. env: variables of a shell, with the key. "
        "secret: a Secret with the key, for kubectl apply",
    )
    command.add_argument("--for-namespace", metavar="NAMESPACE", help="of --output secret: where it is to be created")
    command.set_defaults(run=_client_config)
    text = "an archive for those who help: objects without secrets, events, logs, reports, metrics"
    command = commands.add_parser("support-bundle", parents=[common], help=text, description=text)
    command.add_argument("cluster", nargs="?", help="may be left out where there is only one")
    command.add_argument("-o", "--output", type=Path, help="file to write (default swiftlet-CLUSTER-TIME.tar.gz)")
    command.set_defaults(run=_bundle)
    _add_advise(commands, common)
    _add_bench(commands, common)
    _add_backup(commands, common)
    _add_restore(commands, common)
    return top


def _add_advise(commands: Any, common: argparse.ArgumentParser) -> None:
    text = "pitfalls of a cluster with the load that it has now, and the field to change; exit code 1 for warnings"
    command = commands.add_parser("advise", parents=[common], help=text, description=text)
    command.add_argument("cluster", nargs="?", help="all of the namespace when not given")
    command.add_argument("-A", "--all-namespaces", action="store_true")
    command.add_argument("--seconds", type=_seconds, default=30.0, help="to watch the load for (default 30)")
    command.add_argument("--times", type=_seconds, default=1.0, help="so many times the load that is seen (default 1)")
    command.set_defaults(run=_advise)


def _add_bench(commands: Any, common: argparse.ArgumentParser) -> None:
    text = "load a store by pods of the cluster as a scenario says, and bring home what they measured"
    command = commands.add_parser("bench", parents=[common], help=text, description=text)
    command.add_argument("scenario", help="name of one that ships (`swiftlet bench list`), or a file")
    command.add_argument("--user", required=True, help="StorageUser that workers log in as: its account gets the load")
    command.add_argument("--workers", type=_workers, default=1, metavar="N", help="pods that load it (default 1)")
    command.add_argument("--runs", type=_limit, default=1, metavar="N", help="repeat all steps so often (default 1)")
    command.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="change the scenario")
    command.add_argument("--image", help="of the pods (default that of the store's)")
    command.add_argument("--cpu", type=_cpu, default="1", help="processors that each worker asks for (default 1)")
    command.add_argument("--wait", type=_seconds, default=300.0, metavar="SECONDS", help="for all pods (default 300)")
    command.add_argument(
        "--limit", type=_limit, default=7200, metavar="SECONDS", help="after which the run is ended (default 7200)"
    )
    command.add_argument("--keep", action="store_true", help="leave the objects in the store")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the result here")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots here")
    command.set_defaults(run=_bench)


def _add_backup(commands: Any, common: argparse.ArgumentParser) -> None:
    text = "keys, rings, users with credentials, policies, quotas and specs of a cluster, in one sealed file"
    command = commands.add_parser("backup", parents=[common], help=text, description=text)
    command.add_argument("cluster", nargs="?", help="may be left out where there is only one")
    command.add_argument("-o", "--output", type=Path, help="file to write (default swiftlet-CLUSTER-TIME.age)")
    command.add_argument(
        "--recipient",
        action="append",
        default=[],
        metavar="age1...",
        help="who can open it; may be given several times",
    )
    command.add_argument("--passphrase-file", type=Path, metavar="FILE", help="its first line opens the backup")
    command.add_argument("--operator-namespace", metavar="NAMESPACE", help="where the recovery key is")
    command.set_defaults(run=_backup)


def _add_restore(commands: Any, common: argparse.ArgumentParser) -> None:
    text = "make again what a backup has and the cluster lacks; nothing is written while something differs"
    command = commands.add_parser("restore", parents=[common], help=text, description=text)
    command.add_argument("file", type=Path, help="what backup wrote")
    command.add_argument("--identity", type=Path, metavar="FILE", help="key of a recipient, as age-keygen writes it")
    command.add_argument("--passphrase-file", type=Path, metavar="FILE", help="its first line is the passphrase")
    command.add_argument("--operator-namespace", metavar="NAMESPACE", help="where the recovery key goes")
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    differing = command.add_mutually_exclusive_group()
    differing.add_argument("--keep", action="store_true", help="leave objects that differ as they are")
    differing.add_argument("--overwrite", action="store_true", help="make objects that differ as the backup has them")
    command.set_defaults(run=_restore)


def _where_options(default: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that say which cluster and namespace, named as kubectl's own."""
    options = argparse.ArgumentParser(add_help=False)
    for flags, text in (
        (("-n", "--namespace"), "that of the context when not given"),
        (("--context",), "context of the kubeconfig"),
        (("--kubeconfig",), "path of the kubeconfig"),
    ):
        options.add_argument(*flags, default=default, help=text)
    return options


def _limit(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_MOST}")
    return int(text)


def _workers(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= bench.MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {bench.MAX_WORKERS}")
    return int(text)


def _cpu(text: str) -> str:
    if not _CPU.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processors such as 500m or 2")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0 and up to {_MOST}")
    return value


def _target(text: str) -> str:
    if not _TARGET.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a pod nor a device such as store-disks-2/d1")
    return text


def _where(kubectl: Kubectl, options: argparse.Namespace) -> str | None:
    if getattr(options, "all_namespaces", False):
        return None
    return options.namespace or kubectl.namespace()


def _each(kubectl: Kubectl, options: argparse.Namespace, show: Callable[[Kubectl, dict[str, object]], int]) -> int:
    code = 0
    for index, cluster in enumerate(clusters_of(kubectl, _where(kubectl, options), options.cluster)):
        if index:
            _print([""])
        code = max(code, show(kubectl, cluster))
    return code


def _status(kubectl: Kubectl, options: argparse.Namespace) -> int:
    def show(kubectl: Kubectl, cluster: dict[str, object]) -> int:
        _print(render.status(look(kubectl, cluster)))
        return 0

    return _each(kubectl, options, show)


def _rings(kubectl: Kubectl, options: argparse.Namespace) -> int:
    def show(kubectl: Kubectl, cluster: dict[str, object]) -> int:
        _print(render.rings(look(kubectl, cluster)))
        return 0

    return _each(kubectl, options, show)


def _health(kubectl: Kubectl, options: argparse.Namespace) -> int:
    def show(kubectl: Kubectl, cluster: dict[str, object]) -> int:
        picture = look(kubectl, cluster)
        found = findings(picture)
        _print(render.health(picture, found))
        return worst(found)

    return _each(kubectl, options, show)


def _advise(kubectl: Kubectl, options: argparse.Namespace) -> int:
    def show(kubectl: Kubectl, cluster: dict[str, object]) -> int:
        found = advise.find(kubectl, cluster, options.seconds, options.times)
        _print(list(found.lines()))
        return int(any(one.severity == WARNING for one in found.findings))

    return _each(kubectl, options, show)


def _bench(kubectl: Kubectl, options: argparse.Namespace) -> int:
    scenario, is_text = bench.scenario_of(options.scenario)
    for path in (options.json, options.html):
        if path is not None and not path.absolute().parent.is_dir():
            raise KubectlError(f"{path} can't be written: there is no folder {path.absolute().parent}")
    access = client_config.find(kubectl, options.namespace or kubectl.namespace(), options.user)
    run = Run(
        name=bench.new_name(),
        access=access,
        image=bench.image_of(kubectl, access.namespace, access.cluster, options.image),
        scenario=scenario,
        is_text=is_text,
        workers=options.workers,
        runs=options.runs,
        changes=tuple(options.set),
        keeps=options.keep,
        cpu=options.cpu,
        wait_s=options.wait,
        limit_s=options.limit,
        token=bench.new_token(),
    )
    outcome = bench.carry_out(kubectl, run, _tell)
    bench.check_result(outcome)
    _print([outcome.table.rstrip()])
    for path, text in ((options.json, outcome.result), (options.html, outcome.page)):
        if path is not None:
            try:
                path.write_text(text, "utf-8")
            except OSError as error:
                raise KubectlError(f"{path} can't be written: {error}") from error
    return outcome.code


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _drain(kubectl: Kubectl, options: argparse.Namespace) -> int:
    namespace = options.namespace or kubectl.namespace()
    cluster = drain.cluster_of(kubectl, namespace, options.targets)
    name = cluster["metadata"]["name"]
    change = drain.write(kubectl, cluster, options.targets, options.undo)
    now = ", ".join(change.after) or "nothing"
    did = "spec.drain is now" if change.changes else "nothing to change, spec.drain is"
    _print([f"StorageCluster {namespace}/{name}: {did}: {now}"])
    if options.undo or not options.wait:
        return 0
    if drain.wait(kubectl, cluster, options.targets, options.timeout, lambda text: _print([text])):
        _print([f"empty: {', '.join(options.targets)}"])
        return 0
    sys.stderr.write(f"error: not empty after {options.timeout:.0f} s; data is still being moved, or see health\n")
    return 1


def _policy(kubectl: Kubectl, options: argparse.Namespace) -> int:
    namespace = options.namespace or kubectl.namespace()
    found = policy.find(kubectl, namespace, options.name, options.limit, options.after)
    _print(found.lines)
    return 0 if found.usage["whole"] else 1


def _client_config(kubectl: Kubectl, options: argparse.Namespace) -> int:
    if options.for_namespace is not None and options.output != "secret":
        raise KubectlError("--for-namespace goes with --output secret")
    access = client_config.find(kubectl, options.namespace or kubectl.namespace(), options.user)
    _print([client_config.render(kubectl, access, options.output, options.for_namespace)])
    return 0


def _bundle(kubectl: Kubectl, options: argparse.Namespace) -> int:
    found = _only(kubectl, options)
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = options.output or Path(f"swiftlet-{found['metadata']['name']}-{moment}.tar.gz")
    try:
        failures = bundle.make(kubectl, found, path)
    except OSError as error:
        raise KubectlError(f"{path} can't be written: {error}") from error
    missing = f", {len(failures)} parts could not be had: see failures.txt in it" if failures else ""
    _print([f"{path}: written{missing}"])
    return 0


def _backup(kubectl: Kubectl, options: argparse.Namespace) -> int:
    cluster = _only(kubectl, options)
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = options.output or Path(f"swiftlet-{cluster['metadata']['name']}-{moment}.age")
    made = backup.make(kubectl, cluster, options.operator_namespace)
    sealed_file.write(made, path, options.recipient, options.passphrase_file)
    if not any(one.name == backup.RECOVERY for one in made.objects):
        sys.stderr.write("warning: no recovery key was found, so there is none in the backup\n")
    _print([f"{path}: {len(made.objects)} objects of StorageCluster {made.namespace}/{made.cluster} written"])
    return 0


def _restore(kubectl: Kubectl, options: argparse.Namespace) -> int:
    found = sealed_file.read(options.file, options.identity, options.passphrase_file)
    if options.namespace not in (None, found.namespace):
        raise BackupError(
            f"the backup is of namespace {found.namespace}, and is restored there only: rings name servers by namespace"
        )
    _print([f"backup of StorageCluster {found.namespace}/{found.cluster} from {found.made_at}"])
    mode = "overwrite" if options.overwrite else "keep" if options.keep else "refuse"
    steps = restore.plan(kubectl, found, options.operator_namespace, mode)
    _print([str(one) for one in steps])
    if differing := restore.conflicts(steps):
        raise BackupError(
            f"{len(differing)} objects differ from those in the backup, and nothing was written: give --keep to leave "
            "them as they are, or --overwrite to have those of the backup"
        )
    if options.dry_run:
        _print(["nothing was written"])
        return 0
    _print([f"{restore.carry_out(kubectl, steps)} objects written"])
    return 0


def _only(kubectl: Kubectl, options: argparse.Namespace) -> dict[str, Any]:
    """Return the cluster that is meant. Raises KubectlError when that is ambiguous."""
    found = clusters_of(kubectl, options.namespace or kubectl.namespace(), options.cluster)
    if len(found) > 1:
        names = ", ".join(str(one["metadata"]["name"]) for one in found)
        raise KubectlError(f"there are several StorageClusters: {names}; name one of them")
    return found[0]


def _print(lines: Sequence[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def entry() -> None:
    """Run the plugin and exit with its status."""
    sys.exit(main())
