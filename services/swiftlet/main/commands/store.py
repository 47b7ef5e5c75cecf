"""`swiftlet store`: look at the native store of a device that no server is using, and mend its index.

Every command owns the device while it runs, as a server does, and starts it as a server does: what a crash left
unfinished is cleaned up, and what is found damaged is set aside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from swiftlet.errors import ChecksumMismatch, DeviceFailed, NotFound, StoreFormatError
from swiftlet.model import Entry, Kind, ObjectKey
from swiftlet.store.native import NativeStore, holds_store
from swiftlet.timestamp import ZERO

_PROBLEMS = 1000
"""Sentences that `check` prints of one kind; it counts all of them."""

_device_argument = click.argument("device", type=click.Path(path_type=Path, file_okay=False))


@click.group(short_help="Look at and mend the native store of a device.")
def store() -> None:
    """Look at the native store in the directory DEVICE, and mend its index.

    \b
    swiftlet store stats /srv/swiftlet/d1
    swiftlet store check --data /srv/swiftlet/d1
    swiftlet store dump /srv/swiftlet/d1 --partition 417 | jq .name
    swiftlet store rebuild-index /srv/swiftlet/d1

    Stop the object server of the device first: a device that is in use is refused.
    """


@contextmanager
def _opened(device: Path) -> Iterator[NativeStore]:
    _check_native(device)
    with closing(NativeStore(device, threads=False)) as opened:
        yield opened


def _check_native(device: Path) -> None:
    """Refuse a directory without a native store, before anything in it is touched."""
    if not device.is_dir():
        raise DeviceFailed(f"{device} is not a directory; mount the device there")
    if not holds_store(device):
        raise StoreFormatError(f"{device} holds no store; give the directory of the device, which contains `volumes`")


@store.command(short_help="Compare the index with the volumes; with --data read all data.")
@_device_argument
@click.option("--data", is_flag=True, help="Also read all data and check it; what is damaged is set aside.")
def check(device: Path, data: bool) -> int:
    """Compare the index of DEVICE with what its volumes say. Ends with 1 if anything is wrong."""
    with _opened(device) as opened:
        recovery = opened.recovery()
        problems = list(opened.check())
        if recovery["damaged"]:
            problems.append(f"{recovery['damaged']} records were found damaged at the start and set aside")
        if recovery["dangling"]:
            problems.append(f"{recovery['dangling']} entries of the index pointed nowhere")
        if data:
            problems += [f"{name}: {text}" for name, text in _damaged(opened)]
        for problem in problems[:_PROBLEMS]:
            click.echo(problem)
        objects = opened.usage().objects
        click.echo(f"{objects} objects and tombstones, {len(problems) or 'no'} problems")
        return 1 if problems else 0


def _damaged(opened: NativeStore) -> Iterator[tuple[str, str]]:
    for key, _ in _all(opened, None, None):
        try:
            opened.verify(key)
        except ChecksumMismatch as error:
            yield f"policy {key.policy} partition {key.partition}", str(error)
        except NotFound:
            continue


@store.command(short_help="Print what is held, a line of JSON each.")
@_device_argument
@click.option("--policy", type=click.IntRange(0, 255), help="Only this storage policy.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
def dump(device: Path, policy: int | None, partition: int | None) -> None:
    """Print every object and tombstone on DEVICE as a line of JSON, by policy, partition and suffix."""
    with _opened(device) as opened:
        for key, entry in _all(opened, policy, partition):
            click.echo(json.dumps(_fields(opened, key, entry), ensure_ascii=True))


def _all(opened: NativeStore, policy: int | None, partition: int | None) -> Iterator[tuple[ObjectKey, Entry]]:
    for one in opened.policies():
        if policy not in (None, one):
            continue
        for number in opened.partitions(one):
            if partition not in (None, number):
                continue
            for suffix in opened.suffix_hashes(one, number):
                for entry in opened.entries(one, number, suffix):
                    yield ObjectKey(one, number, entry.digest), entry


def _fields(opened: NativeStore, key: ObjectKey, entry: Entry) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "policy": key.policy,
        "partition": key.partition,
        "digest": key.hex,
        "kind": entry.kind.name.lower(),
        "timestamp": entry.timestamp.internal,
    }
    if entry.kind is Kind.TOMBSTONE:
        return fields
    try:
        info = opened.stat(key)
    except (ChecksumMismatch, NotFound) as error:
        return {**fields, "error": str(error)}
    fields |= {"name": info.name, "size": info.size, "etag": info.etag, "content_type": info.content_type}
    if entry.meta_timestamp != ZERO:
        fields["meta_timestamp"] = entry.meta_timestamp.internal
    return {**fields, "metadata": dict(info.metadata), "sysmeta": dict(info.sysmeta)}


@store.command(short_help="Print how full the device is, its volumes, and what the start found.")
@_device_argument
def stats(device: Path) -> None:
    """Print as JSON how full DEVICE is, how much of each volume is of use, and what the start found."""
    with _opened(device) as opened:
        usage = opened.usage()
        document = {
            "total_bytes": usage.total_bytes,
            "free_bytes": usage.free_bytes,
            "objects_and_tombstones": usage.objects,
            "start": dict(opened.recovery()),
            "quarantined": len(list((device / "quarantined").iterdir())),
            "volumes": [
                {"number": volume.number, "compaction": volume.compaction, "bytes": volume.size, "held": volume.held}
                for volume in opened.volumes()
            ],
        }
        click.echo(json.dumps(document, indent=2))


@store.command(name="rebuild-index", short_help="Make the index anew from the volumes.")
@_device_argument
def rebuild_index(device: Path) -> None:
    """Throw the checkpoints of DEVICE away, read all its volumes, and write the index anew.

    A server does that by itself when checkpoints are damaged. By hand it is for an index of which `check` says that it
    differs from the volumes.
    """
    _check_native(device)
    with closing(NativeStore.rebuilt(device)) as opened:
        records = opened.recovery()["records"]
        click.echo(f"{opened.usage().objects} objects and tombstones found in {records} records")
