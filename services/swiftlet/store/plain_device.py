"""The device below a plain store: its directories, its lock, its reserve, and what its errors mean.

Fault model: the device may be full, over quota, read-only, unplugged (the mount point is then an empty directory
of the root file system, which must not be written to), or answer any call with an I/O error. After a failed
fsync nobody knows what is on the disk, and a second fsync may lie: the device then takes no more writes until
the store is opened again. The process may die at any instruction: what is in `tmp/` then belongs to nobody and
is removed on the next start. What an earlier process wrote without syncing is synced before anything else.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from swiftlet.errors import DeviceFailed, DeviceLocked, DiskFull, StoreFormatError
from swiftlet.model import ObjectKey, Usage
from swiftlet.store.failpoints import reach
from swiftlet.store.plain_paths import names_in

OBJECTS = "objects"
TEMPORARY = "tmp"
QUARANTINE = "quarantined"
LOCK_FILE = ".lock"
_NATIVE_MARK = "format"
_NATIVE_VOLUMES = "volumes"

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FAILED = {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EUCLEAN, errno.ENOTCONN}


class PlainDevice:
    """One mounted directory, owned until `close`."""

    def __init__(self, root: Path, reserve_bytes: int, reserve_percent: float, require_mount: bool) -> None:
        """Take the device: DeviceFailed when it is not there, DeviceLocked when another process has it.

        StoreFormatError for a device of the native store.
        """
        self.root = str(root)
        self._reserve_bytes = reserve_bytes
        self._reserve_percent = reserve_percent
        self._failed: str | None = None
        self._numbers = itertools.count()
        self._policies: set[int] = set()
        self._policies_lock = threading.Lock()
        self._token = secrets.token_hex(4)
        _check_there(self.root, require_mount)
        with self.errors():
            self._lock_fd = _lock(self.root)
            try:
                self._prepare()
            except BaseException:
                os.close(self._lock_fd)
                raise

    def _prepare(self) -> None:
        if holds_volumes(self.root):
            raise StoreFormatError(
                f"{self.root} was written by the native store; set object.store to native, or empty the device"
            )
        for name in (OBJECTS, TEMPORARY, QUARANTINE):
            os.makedirs(os.path.join(self.root, name), exist_ok=True)
        for name in os.listdir(os.path.join(self.root, TEMPORARY)):
            os.unlink(os.path.join(self.root, TEMPORARY, name))
        _sync_file_system(self._lock_fd)

    def close(self) -> None:
        """Give the device to others; harmless a second time."""
        if self._lock_fd >= 0:
            self._failed = self._failed or "the store was closed"
            os.close(self._lock_fd)
            self._lock_fd = -1

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the operating system's errors into DiskFull and DeviceFailed where they mean that."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFull(f"{self.root} is full: {error.strerror}; remove data or add devices") from error
            if error.errno in _FAILED:
                raise DeviceFailed(f"{self.root} failed: {error}") from error
            if error.errno == errno.ENOENT and not os.path.isdir(os.path.join(self.root, OBJECTS)):
                raise DeviceFailed(f"{self.root} is gone: is the device still mounted?") from error
            raise

    def check_writable(self) -> None:
        """DeviceFailed after a write that left the device in an unknown state."""
        if self._failed is not None:
            raise DeviceFailed(f"{self.root} takes no writes: {self._failed}")

    def check_room(self, size: int) -> None:
        """DiskFull when `size` bytes more would eat into the reserve."""
        usage = self.usage()
        reserve = max(self._reserve_bytes, int(usage.total_bytes * self._reserve_percent / 100))
        if usage.free_bytes - size < reserve:
            raise DiskFull(f"{self.root} has {usage.free_bytes} bytes free and keeps {reserve} of them in reserve")

    def usage(self) -> Usage:
        """Bytes in total and free for ordinary users."""
        with self.errors():
            status = os.statvfs(self.root)
        return Usage(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

    def temporary(self) -> tuple[int, str]:
        """A new file in `tmp/`, open for writing."""
        path = os.path.join(self.root, TEMPORARY, f"{self._token}-{next(self._numbers)}")
        with self.errors():
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640), path

    def sync_data(self, fd: int) -> None:
        """Bring a growing file's data to the disk."""
        self.sync(fd, os.fdatasync)

    def sync(self, fd: int, call: Callable[[int], None] | None = None) -> None:
        """Make a file or directory durable. A failure ends all writing: see the fault model."""
        try:
            (call or os.fsync)(fd)
        except OSError as error:
            if error.errno not in _FULL:
                self._failed = f"fsync failed: {error.strerror}"
            raise

    def sync_directory(self, path: str) -> None:
        """Make a directory's entries durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sync(fd)
        finally:
            os.close(fd)

    def policy_path(self, policy: int) -> str:
        """Directory of a storage policy."""
        return f"{self.root}/{OBJECTS}/{policy}"

    def partition_path(self, policy: int, partition: int) -> str:
        """Directory of a partition."""
        return f"{self.root}/{OBJECTS}/{policy}/{partition}"

    def object_path(self, key: ObjectKey) -> str:
        """Directory of an object; made of numbers and hex digits, never of its name."""
        digest = key.hex
        return f"{self.root}/{OBJECTS}/{key.policy}/{key.partition}/{digest[-3:]}/{digest}"

    def make_policy(self, policy: int) -> None:
        """Make a policy's directory durably; policies share no partition's lock, so they have one of their own."""
        if policy in self._policies:
            return
        with self._policies_lock:
            path = self.policy_path(policy)
            if not os.path.isdir(path):
                os.mkdir(path, 0o750)
            self.sync_directory(os.path.dirname(path))
            self._policies.add(policy)

    def make_parents(self, directory: str) -> None:
        """Make a directory and what is missing above it, down from `objects/`, each durable in its parent.

        The caller holds the partition's lock, so whoever finds one of these directories finds it durable.
        """
        try:
            os.mkdir(directory, 0o750)
        except FileExistsError:
            return
        except FileNotFoundError:
            parent = os.path.dirname(directory)
            if parent == self.root:
                raise
            self.make_parents(parent)
            os.mkdir(directory, 0o750)
        reach("made-directory")
        self.sync_directory(os.path.dirname(directory))

    def quarantine(self, key: ObjectKey, name: str) -> str:
        """Move a damaged file out of its object's directory; where it is now."""
        source = self.object_path(key)
        label = f"{key.policy}_{key.partition}_{key.hex}_{time.time_ns()}_{name}"
        target = os.path.join(self.root, QUARANTINE, label)
        os.rename(os.path.join(source, name), target)
        self.sync_directory(os.path.join(self.root, QUARANTINE))
        self.sync_directory(source)
        return target


def holds_volumes(root: str) -> bool:
    """Whether a device is the native store's: its mark is there, or volumes are that have lost it."""
    return os.path.exists(os.path.join(root, _NATIVE_MARK)) or bool(names_in(os.path.join(root, _NATIVE_VOLUMES)))


def _check_there(root: str, require_mount: bool) -> None:
    if not os.path.isdir(root):
        raise DeviceFailed(f"{root} is not a directory; mount the device there")
    if require_mount and not os.path.ismount(root):
        raise DeviceFailed(f"{root} is not a mount point; mount the device there")


def _lock(root: str) -> int:
    """Own the device; DeviceLocked names the process that has it."""
    fd = os.open(os.path.join(root, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise DeviceLocked(f"{root} is in use by process {owner}; stop it or give this one another device") from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
    return fd


def _sync_file_system(fd: int) -> None:
    """syncfs(2): make durable whatever an earlier process left in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
