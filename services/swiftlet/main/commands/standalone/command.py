"""`swiftlet standalone`: from options to a running store and back."""

from __future__ import annotations

import importlib.util
import json
import os
import time
from pathlib import Path

import click

from swiftlet.errors import SettingsError
from swiftlet.main.commands.standalone.fork import preload
from swiftlet.main.commands.standalone.lock import running_here, stop_running
from swiftlet.main.commands.standalone.plan import DRAIN_S, HOST, POLICIES, Layout, Options, Plan, make_plan
from swiftlet.main.commands.standalone.prepare import (
    known_policies,
    load_or_make_secrets,
    make_directories,
    write_file,
    write_policies,
    write_settings,
    write_users,
)
from swiftlet.main.commands.standalone.supervise import Signals, Supervisor, command_of
from swiftlet.settings.sections import MAX_PACK_BELOW
from swiftlet.web.parent import end_with_parent
from swiftlet.web.sockets import PortInUse, listen

_STOP_S = DRAIN_S + 10.0


@click.command(short_help="Run a whole store on this machine.")
@click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), default="./var", help="Where everything is kept."
)
@click.option("--host", default=HOST, show_default=True, help="Address of the API; 0.0.0.0 opens it to the network.")
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    default=8080,
    envvar="SWIFTLET_PORT",
    show_default=True,
    help="The API's port.",
)
@click.option(
    "--base-port", type=click.IntRange(1024, 65_000), default=6200, show_default=True, help="First port of the rest."
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes of the API server."
)
@click.option("--user", help="ACCOUNT:USER of the admin; kept for later starts.  [first start: test:tester]")
@click.option("--key", help="Secret of the admin; kept for later starts.  [first start: a random one]")
@click.option(
    "--policies",
    help="Names of storage policies with commas between them, the default first; NAME=K+M has erasure coding with K"
    " data and M parity fragments, and the store K+M+1 devices. Kept for later starts, which may add some."
    f"  [first start: {','.join(POLICIES)}]",
)
@click.option(
    "--pack-below",
    type=click.IntRange(0, MAX_PACK_BELOW),
    default=0,
    show_default=True,
    help="Bytes up to which objects with erasure coding are kept as copies, until replicator.pack_after_s packs them.",
)
@click.option(
    "--restart/--no-restart",
    default=True,
    show_default=True,
    help="Whether services that die come back by themselves, or at a SIGUSR1 to this process only.",
)
@click.option("--ready-file", type=click.Path(path_type=Path, dir_okay=False), help="JSON file to write once ready.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
@click.option("--stop", is_flag=True, help="Stop the store that runs on --data.")
@click.option("--parent", type=int, hidden=True, help="End with this process.")
def standalone(
    data: Path,
    host: str,
    port: int,
    base_port: int,
    workers: int,
    user: str | None,
    key: str | None,
    policies: str | None,
    pack_below: int,
    restart: bool,
    ready_file: Path | None,
    quiet: bool,
    stop: bool,
    parent: int | None,
) -> None:
    """Run a whole store on this machine until Ctrl-C.

    The same programs as in a cluster: an API server, object servers for four devices in as many zones (more with
    erasure coding), account and container servers, a replicator and a metadata server. Data and secrets are kept in
    --data.
    """
    layout = Layout(data.absolute())
    if stop:
        pid = stop_running(layout.lock, timeout_s=3 * _STOP_S)
        _say(f"stopped (process {pid})", quiet)
        return
    names = () if policies is None else tuple(name.strip() for name in policies.split(","))
    options = Options(layout.data, host, port, base_port, workers, user, key, names, pack_below)
    _check_native()
    make_directories(layout)
    with running_here(layout.lock):
        _run(options, restart, ready_file, quiet, parent)


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        click.echo(text)


def _check_native() -> None:
    if importlib.util.find_spec("swiftlet_native") is None:
        raise SettingsError("the native module swiftlet_native is not installed; run `make setup`")


def _run(options: Options, restart: bool, ready_file: Path | None, quiet: bool, parent_pid: int | None) -> None:
    began = time.monotonic()
    signals = Signals()
    with signals.caught():
        if parent_pid is not None:
            end_with_parent(parent_pid)
        plan = prepare(options)
        preload()
        supervisor = Supervisor(
            plan.services,
            signals,
            restart=restart,
            say=lambda text: click.echo(text, err=True),
            on_change=lambda: _write_ready_file(ready_file, plan, supervisor),
        )
        try:
            if supervisor.start():
                _write_ready_file(ready_file, plan, supervisor)
                _say(banner(plan, time.monotonic() - began), quiet)
                supervisor.watch()
        finally:
            _say("stopping", quiet)
            supervisor.stop(_STOP_S)


def prepare(options: Options) -> Plan:
    """Return the plan for `options`, after making everything on disk that it needs."""
    from swiftlet.main.commands.standalone.rings import write_rings

    layout = Layout(options.data)
    _check_port(options.host, options.port)
    secrets = load_or_make_secrets(layout, options)
    write_users(layout, secrets)
    plan = make_plan(options, secrets, port_is_free, known_policies(layout))
    write_policies(plan)
    write_rings(plan)
    write_settings(plan)
    return plan


def port_is_free(port: int) -> bool:
    """Return whether nobody listens on this port of the storage services' address."""
    try:
        listen(HOST, port).close()
    except PortInUse:
        return False
    return True


def _check_port(host: str, port: int) -> None:
    """Raise SettingsError, with the fix, when the API can't listen there."""
    try:
        listen(host, port).close()
    except PortInUse as error:
        raise SettingsError(
            f"port {port} is in use by another process (`ss -ltnp 'sport = :{port}'` shows it); "
            "stop it or choose another port with --port or SWIFTLET_PORT"
        ) from error


def _write_ready_file(path: Path | None, plan: Plan, supervisor: Supervisor) -> None:
    if path is None:
        return
    pids = supervisor.pids()
    services = {
        service.name: {
            "pid": pids.get(service.name),
            "port": service.port,
            "url": f"http://{HOST}:{service.port}",
            "management_url": f"http://{HOST}:{service.management_port}",
            "log": str(service.log),
            "command": command_of(service),
        }
        for service in plan.services
    }
    document = {
        "endpoint": plan.endpoint,
        "auth_url": plan.auth_url,
        "user": plan.secrets.user,
        "key": plan.secrets.key,
        "data": str(plan.layout.data),
        "pid": os.getpid(),
        "services": services,
    }
    write_file(path, json.dumps(document, indent=2) + "\n")


def banner(plan: Plan, seconds: float) -> str:
    """Return the text that says where the store is, how to use it, where its data and logs are, and how to stop it."""
    user, key = plan.secrets.user, plan.secrets.key
    storage = f"{plan.endpoint}/v1/AUTH_{user.partition(':')[0]}"
    return f"""
Swiftlet is up after {seconds:.1f} s: an object store with {len(plan.object_devices)} devices in as many zones.

  endpoint   {plan.endpoint}
  auth URL   {plan.auth_url}
  user       {user}
  key        {key}

With curl:
  TOKEN=$(curl -si {plan.auth_url} -H 'X-Auth-User: {user}' -H 'X-Auth-Key: {key}' \\
    | tr -d '\\r' | awk 'tolower($1) == "x-auth-token:" {{print $2}}')
  curl -i -X PUT {storage}/photos -H "X-Auth-Token: $TOKEN"
  curl -i -X PUT {storage}/photos/hello.txt -H "X-Auth-Token: $TOKEN" -d 'hello, world'
  curl {storage}/photos/hello.txt -H "X-Auth-Token: $TOKEN"

With the swift client:
  swift -A {plan.auth_url} -U {user} -K {key} upload photos README.md
  swift -A {plan.auth_url} -U {user} -K {key} list photos

  data       {plan.layout.data}
  logs       {plan.layout.log}/*.log
  metrics    {plan.metrics_url}
  stop       Ctrl-C here, or `swiftlet standalone --stop --data {plan.layout.data}`
"""
