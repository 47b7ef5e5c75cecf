"""Runs a service in a fork of this process, which imports what every service needs once for all of them.

Nothing that is imported beforehand may start a thread, or make a metric: prometheus-client decides at its import
whether the workers of a process share their metrics, and the services' own modules count in the one registry.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Collection
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from swiftlet.main.commands.standalone.plan import ServicePlan

PRELOADED = (
    "aiohttp.web",
    "pydantic",
    "redis.asyncio",
    "sqlite3",
    "structlog",
    "swiftlet.api.context.access",
    "swiftlet.api.http.direct_body",
    "swiftlet.api.http.etags",
    "swiftlet.api.http.listings",
    "swiftlet.api.http.multipart",
    "swiftlet.api.http.tar_stream",
    "swiftlet.api.reading.slo_manifest",
    "swiftlet.auth.revocation",
    "swiftlet.auth.signatures",
    "swiftlet.auth.users",
    "swiftlet.expiry.tasks",
    "swiftlet.front.connections",
    "swiftlet.listing.handle",
    "swiftlet.listing.shards",
    "swiftlet.main.commands.launch",
    "swiftlet.main.sealed_keys",
    "swiftlet.placement.plan",
    "swiftlet.quota.bounds",
    "swiftlet.servers.containers.row_decode",
    "swiftlet.servers.objects.doubts",
    "swiftlet.servers.objects.sync_copies",
    "swiftlet.servers.objects.sync_stream",
    "swiftlet.servers.shared.sync_answers",
    "swiftlet.settings",
    "swiftlet.sync.audit.looking",
    "swiftlet.sync.databases.entries",
    "swiftlet.sync.failures.opinions",
    "swiftlet.sync.failures.table",
    "swiftlet.sync.moving.replica_kind",
    "swiftlet.sync.planning.planned_round",
    "swiftlet.sync.session.handoff",
    "swiftlet.sync.session.neighbour",
    "swiftlet.transport.http_databases",
    "swiftlet.transport.http_shards",
    "swiftlet.web.connection_drain",
    "swiftlet.web.tls_or_plain",
    "swiftlet.web.workers",
    "uvloop",
    "wsgiref.simple_server",
    "yaml",
)
"""Modules that take long to import and register no metrics; their own imports are most of the services' code."""
CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD)
"""The signals that the supervisor has handlers for."""
_FIRST_FD = 3
_LAST_FD = 1 << 16
_COMM = Path("/proc/self/comm")


def preload() -> None:
    """Import what every service needs, and keep it in memory that the forks share."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def forked(plan: ServicePlan) -> BaseProcess:
    """Start a process that runs a service and logs to its file.

    Signals are blocked meanwhile: otherwise the child would handle an early one by its parent's handlers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    try:
        with plan.log.open("ab") as log:
            arguments = plan, log.fileno(), os.getpid(), before
            process = get_context("fork").Process(target=_run, args=arguments, name=plan.name)
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _run(plan: ServicePlan, log_fd: int, parent_pid: int, mask: Collection[int]) -> None:
    from swiftlet.main.commands.cli import run, swiftlet

    _leave_parent(log_fd)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    # `ps -c` and `top` show this name, up to 15 letters.
    _COMM.write_text(plan.name)
    sys.exit(run(swiftlet, [plan.kind, "--config", str(plan.config), "--parent", str(parent_pid)]))


def _leave_parent(log_fd: int) -> None:
    """Give up what the process has from its parent: its group, its handlers of signals, its files."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for caught in CAUGHT:
        signal.signal(caught, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, fd in enumerate((nothing, log_fd, log_fd)):
        os.dup2(fd, standard)
    os.closerange(_FIRST_FD, _LAST_FD)
