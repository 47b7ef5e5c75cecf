"""`swiftlet rdma`: for people who want to know whether RDMA works where they are, and what is missing if not."""

from __future__ import annotations

import click
import swiftlet_native

from swiftlet.settings.base import MIB
from swiftlet.transport.native_caller import machine
from swiftlet.transport.rdma import Surroundings, look, why_not

_POOL_BYTES = 128 * MIB
"""The default of `cluster.native_pool_bytes`."""


@click.group(short_help="Find out whether RDMA can be used here.")
def rdma() -> None:
    """Find out whether RDMA can be used by services that run where this command runs, as its user."""


@rdma.command(short_help="Say what there is of what RDMA needs, and try it.")
@click.option(
    "--pool-bytes",
    type=click.IntRange(16 * MIB, 1 << 40),
    default=_POOL_BYTES,
    show_default=True,
    help="Memory to register with the device, as cluster.native_pool_bytes says.",
)
def check(pool_bytes: int) -> None:
    """Say what there is of what RDMA needs, and try to use a device; the exit code is 1 when that does not work."""
    there = look()
    for line in _lines(there, pool_bytes):
        click.echo(line)
    missing = why_not(there) or _try(pool_bytes)
    click.echo(f"result   {'RDMA can be used' if missing is None else f'no RDMA: {missing}'}")
    if missing is not None:
        raise click.exceptions.Exit(1)


def _lines(there: Surroundings, pool_bytes: int) -> list[str]:
    """What is there, for people."""
    limit = there.locked_limit_bytes
    locked = "no limit" if limit is None else f"{limit} bytes; a service locks {pool_bytes} and some more"
    ports = [str(port) for port in there.ports] or ["none"]
    return [
        f"built    {'without RDMA' if there.version is None else f'with UCX {there.version}'}",
        *(f"device   {port}" for port in ports),
        f"open     {', '.join(there.openable) or 'none'} in /dev/infiniband",
        f"memlock  {locked} (without limit for who has the capability IPC_LOCK)",
    ]


def _try(pool_bytes: int) -> str | None:
    try:
        swiftlet_native.TransportNode("check", machine(), [b"nobody connects"], pool_bytes=pool_bytes, rdma=True)
    except OSError as error:
        return error.strerror or str(error)
    return None
