"""The `swiftlet-operator` command: what the environment says, the client, the lease, and kopf around them.

Without a subcommand it operates until it is stopped. The environment says:

SWIFTLET_IMAGE         image of the services where a StorageCluster names none (required)
SWIFTLET_REDIS_IMAGE   image of the embedded Redis where a StorageCluster names none
POD_NAME, POD_UID      who we are in the lease
POD_NAMESPACE          where the lease is (required)
WATCH_NAMESPACES       the only namespaces to look at, separated by commas; all when empty
LIVENESS_URL           where to answer probes
LEASE_SECONDS          how long after a leader's death another one takes over, 30 when empty; all replicas the same
MAX_UPGRADES           clusters whose pods are restarted at a time, 1 when empty, 0 for any number
UPGRADES_CONTINUE      "true": a cluster whose restarts don't end in time keeps others from theirs no longer
METRICS_PORT           where to show metrics; nowhere when empty
RUNBOOK_URL            page that alerts name, docs/runbooks.md when empty
MONITORING_LABELS      labels of each ServiceMonitor and PrometheusRule, as NAME=VALUE,NAME=VALUE
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import kopf

from swiftlet import __version__
from swiftlet.errors import SettingsError, SwiftletError
from swiftlet_operator.definitions import install, read_definitions
from swiftlet_operator.handlers import REQUEST_TIMEOUT_S, WATCHED, WORKERS, Heart, register, sweep, watches
from swiftlet_operator.kube import connected
from swiftlet_operator.leader import LIFE_S, SHORTEST_LIFE_S, Leader
from swiftlet_operator.manifests import GROUP, OWN_KINDS
from swiftlet_operator.metrics import LEADS, Clusters, exported, served
from swiftlet_operator.migration import migrate
from swiftlet_operator.nodes import follow_nodes
from swiftlet_operator.passwords import Passwords
from swiftlet_operator.rebalances import Rebalances
from swiftlet_operator.reconcile import Reconciler
from swiftlet_operator.recovery import Recovery
from swiftlet_operator.statusz import reporter
from swiftlet_operator.turns import Turns
from swiftlet_operator.uninstall import Release, clusters_of, refusal
from swiftlet_operator.workqueue import WorkQueue
from swiftlet_operator.world import RUNBOOKS, Defaults

DECIDING = 2
"""Clusters that are decided about at a time."""
SWITCH_S = 0.001
"""Seconds after which a computing thread lets others run.

With Python's default of 5 ms every answer of the API server would wait that long for its turn while a ring is made.
"""
_LABEL_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_CHATTY = ("aiohttp.access", "kopf.activities", "kopf.objects")
"""Loggers that write a line for every event and every probe."""


@dataclass(frozen=True, slots=True)
class Options:
    """The operator's options, as given by the environment."""

    defaults: Defaults
    identity: str
    namespace: str
    watched: tuple[str, ...]
    """The only namespaces to manage; all when there is none."""
    liveness_url: str
    metrics_port: int | None = None
    lease_s: float = LIFE_S
    max_upgrades: int = 1
    upgrades_continue: bool = False


def options_of(environ: Mapping[str, str]) -> Options:
    """Return the options in environment variables. Raises SettingsError, which names what is missing."""
    missing = [name for name in ("SWIFTLET_IMAGE", "POD_NAMESPACE") if not environ.get(name)]
    if missing:
        raise SettingsError(f"set {' and '.join(missing)} in the operator's environment; the chart does")
    port = environ.get("METRICS_PORT") or None
    if port is not None and not (port.isdigit() and 0 < int(port) < 65536):
        raise SettingsError(f"METRICS_PORT is {port!r}; it must be a port, from 1 to 65535, or empty")
    return Options(
        defaults=Defaults(
            environ["SWIFTLET_IMAGE"],
            environ.get("SWIFTLET_REDIS_IMAGE") or None,
            environ["POD_NAMESPACE"],
            environ.get("RUNBOOK_URL") or RUNBOOKS,
            _labels(environ.get("MONITORING_LABELS") or ""),
        ),
        identity=f"{environ.get('POD_NAME') or socket.gethostname()}_{environ.get('POD_UID') or os.getpid()}",
        namespace=environ["POD_NAMESPACE"],
        watched=watched_of(environ),
        liveness_url=environ.get("LIVENESS_URL") or "http://0.0.0.0:8081/healthz",
        metrics_port=int(port) if port is not None else None,
        lease_s=_lease_s(environ.get("LEASE_SECONDS") or str(LIFE_S)),
        max_upgrades=_max_upgrades(environ.get("MAX_UPGRADES") or "1"),
        upgrades_continue=environ.get("UPGRADES_CONTINUE", "") == "true",
    )


def _labels(text: str) -> dict[str, str]:
    """Return labels written as NAME=VALUE,NAME=VALUE. Raises SettingsError for what the API server would
    refuse later.
    """
    found = {}
    for one in filter(None, text.split(",")):
        name, equals, value = one.partition("=")
        if not (equals and _LABEL_NAME.fullmatch(name) and _LABEL_VALUE.fullmatch(value)):
            raise SettingsError(f"MONITORING_LABELS: {one!r} is no label; write NAME=VALUE, separated by commas")
        found[name] = value
    return found


def watched_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the only namespaces to manage; none when all are."""
    names = (name.strip() for name in environ.get("WATCH_NAMESPACES", "").split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def _lease_s(text: str) -> float:
    try:
        life_s = float(text)
    except ValueError:
        life_s = 0.0
    if not SHORTEST_LIFE_S <= life_s < float("inf"):
        raise SettingsError(f"LEASE_SECONDS is {text!r}; it must be a number, {SHORTEST_LIFE_S:g} or more")
    return life_s


def _max_upgrades(text: str) -> int:
    if not text.isdigit():
        raise SettingsError(f"MAX_UPGRADES is {text!r}; it must be a whole number, 0 for any number of clusters")
    return int(text)


async def run(options: Options) -> None:
    """Operate until cancelled, or until a part of it ends."""
    count = len(WATCHED) * max(1, len(options.watched))
    async with served(options.metrics_port), connected(REQUEST_TIMEOUT_S, count) as kube, reporter() as asking:
        leader = Leader(kube, options.namespace, options.identity, time.monotonic, options.lease_s, options.watched)
        LEADS.set_function(lambda: float(leader.leads))
        clusters = Clusters(lambda: leader.leads)
        loop = asyncio.get_running_loop()
        # Each thread that decides keeps memory that no other one uses.
        loop.set_default_executor(ThreadPoolExecutor(DECIDING))
        rebalances = Rebalances(lambda key: loop.call_soon_threadsafe(queue.add, key))
        recovery = Recovery(kube, options.namespace, leader.require, time.monotonic)
        turns = Turns(options.max_upgrades, options.upgrades_continue)
        reconciler = Reconciler(
            kube,
            options.defaults,
            Passwords(),
            leader.require,
            _now_s,
            asking,
            rebalances.of,
            turns.of,
            recovery,
            clusters,
        )
        queue = WorkQueue(reconciler.reconcile, workers=WORKERS)
        heart = Heart(time.monotonic())
        registry = kopf.OperatorRegistry()
        register(registry, queue, heart, leader)
        watching = kopf.operator(
            registry=registry,
            standalone=True,
            clusterwide=not options.watched,
            namespaces=options.watched,
            liveness_endpoint=options.liveness_url,
            # Without it kopf looks up the name of the user that it runs as, and the image has only a number.
            identity=cast(Any, options.identity),
        )
        others = watches(kube, queue, leader, options.watched)
        nodes = follow_nodes(kube, lambda: leader.leads, queue.add_all)
        sweeping = sweep(kube, queue, heart, leader, options.watched, clusters)
        parts = [leader.run(), sweeping, nodes, *others, watching]
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            with exported(clusters):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The lease is released last: the next leader finds nobody writing.
            await queue.close()
            rebalances.close()
            for task in reversed(tasks):
                task.cancel()
                await asyncio.wait([task])
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error


def _now_s() -> int:
    return int(time.time())


async def install_definitions(folder: Path, version: str) -> None:
    """Install the definitions of a folder. Raises KubeError when they are not usable afterwards."""
    definitions = read_definitions(folder)
    async with connected(REQUEST_TIMEOUT_S) as kube:
        await install(kube, definitions, version)


async def migrate_storage() -> None:
    """Bring all objects to the version that is stored. Raises KubeError when one can't be written."""
    async with connected(REQUEST_TIMEOUT_S) as kube:
        for kind in OWN_KINDS:
            await migrate(kube, f"{kind.plural}.{GROUP}")


async def guard(release: Release, watched: Sequence[str]) -> str | None:
    """Return why the release may not be uninstalled, None when it may. Raises KubeError when that can't be
    found out.
    """
    async with connected(REQUEST_TIMEOUT_S) as kube:
        return refusal(await clusters_of(kube, watched), release)


def main() -> None:
    """Parse the arguments and run the operator."""
    arguments = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.setswitchinterval(SWITCH_S)
    try:
        if arguments.command == "install-crds":
            asyncio.run(install_definitions(arguments.folder, arguments.crds_version))
        elif arguments.command == "migrate-storage":
            asyncio.run(migrate_storage())
        elif arguments.command == "uninstall-guard":
            release = Release(arguments.release, arguments.namespace, arguments.revision)
            sys.exit(asyncio.run(guard(release, arguments.watched)))
        else:
            asyncio.run(run(options_of(os.environ)))
    except SwiftletError as error:
        sys.exit(f"swiftlet-operator: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="swiftlet-operator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"swiftlet {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    crds = commands.add_parser("install-crds", help="make or replace the custom resource definitions, and end")
    crds.add_argument("folder", type=Path, help="where their YAML files are")
    crds.add_argument("--crds-version", default=__version__, help="what they came with; a newer one is left as it is")
    commands.add_parser("migrate-storage", help="rewrite all objects in the version that is stored, and end")
    guards = commands.add_parser("uninstall-guard", help="fail while there are StorageClusters, and say why")
    guards.add_argument("--release", required=True, help="name of the Helm release")
    guards.add_argument("--namespace", required=True, help="its namespace")
    guards.add_argument("--revision", type=int, required=True, help="its revision")
    guards.add_argument("--watched", action="append", default=[], help="a namespace to look at, instead of all")
    return parser
