"""Which store a device is of, and opening the one that the settings name.

A device says by what is on it which store wrote it; each store refuses, under the device's lock, what the other one
wrote (`StoreFormatError`), so that none ever begins empty beside the other's objects. A device on which the plain store
never kept anything is nobody's yet; the native store's mark, the file `format`, is there from the first start on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from swiftlet.store.native import NativeStore
from swiftlet.store.plain import PlainStore
from swiftlet.store.plain_device import OBJECTS, holds_volumes
from swiftlet.store.plain_paths import names_in

StoreKind = Literal["native", "plain"]


def kind_of(root: Path) -> StoreKind | None:
    """Which store a device's directory is of; None for neither's."""
    if holds_volumes(str(root)):
        return "native"
    return "plain" if names_in(str(root / OBJECTS)) else None


def open_store(
    kind: StoreKind,
    root: Path,
    *,
    reserve_bytes: int = 0,
    reserve_percent: float = 0.0,
    require_mount: bool = False,
    compact_bytes_per_s: int = 0,
    audit_bytes_per_s: int = 0,
) -> NativeStore | PlainStore:
    """Own the device mounted at `root`. DeviceFailed, DeviceLocked, StoreFormatError if the other kind wrote it."""
    if kind == "plain":
        return PlainStore(
            root, reserve_bytes=reserve_bytes, reserve_percent=reserve_percent, require_mount=require_mount
        )
    return NativeStore(
        root,
        reserve_bytes=reserve_bytes,
        reserve_percent=reserve_percent,
        require_mount=require_mount,
        compact_bytes_per_s=compact_bytes_per_s,
        audit_bytes_per_s=audit_bytes_per_s,
    )
