"""What is particular to the plain store: its device, its lock, and damage to its files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swiftlet.errors import ChecksumMismatch, DeviceFailed, DeviceLocked, DiskFull, NotFound
from swiftlet.model import PutRecord
from swiftlet.store import failpoints, plain_format
from swiftlet.store.plain import PlainStore
from swiftlet.store.tests.test_conformance import data_file
from swiftlet.testing.store.conformance import NAME, at, content, footer_of, key_of, post, put


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PlainStore]:
    store = PlainStore(tmp_path)
    yield store
    store.close()


def test_layout(store: PlainStore, tmp_path: Path) -> None:
    key = key_of(1)
    put(store, key, 1, b"data")
    post(store, key, 2, a="b")
    directory = tmp_path / "objects" / "0" / "7" / "001" / key.hex
    assert sorted(os.listdir(directory)) == [f"{at(1).internal}.data", f"{at(2).internal}.meta"]
    put(store, key, 3, b"data")
    assert os.listdir(directory) == [f"{at(3).internal}.data"]
    store.delete(key, at(4), NAME)
    assert os.listdir(directory) == [f"{at(4).internal}.ts"]
    assert store.reclaim(at(5)) == 1
    assert os.listdir(tmp_path / "objects" / "0") == []


def test_another_process_owns_the_device(store: PlainStore, tmp_path: Path) -> None:
    with pytest.raises(DeviceLocked, match=f"in use by process {os.getpid()};"):
        PlainStore(tmp_path)
    store.close()
    PlainStore(tmp_path).close()


def test_device_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DeviceFailed, match="not a directory"):
        PlainStore(tmp_path / "missing")
    with pytest.raises(DeviceFailed, match="not a mount point"):
        PlainStore(tmp_path, require_mount=True)
    assert os.listdir(tmp_path) == []


def test_device_that_goes_away(store: PlainStore, tmp_path: Path) -> None:
    """An unmounted device leaves an empty directory, which must stay empty."""
    put(store, key_of(1), 1, b"data")
    os.rename(tmp_path, tmp_path.with_name("moved"))
    os.mkdir(tmp_path)
    with pytest.raises(DeviceFailed, match="still mounted"):
        put(store, key_of(2), 1, b"data")
    assert os.listdir(tmp_path) == []


def test_leftovers_are_removed(store: PlainStore, tmp_path: Path) -> None:
    store.create(key_of(1)).write(b"half")
    assert len(os.listdir(tmp_path / "tmp")) == 1
    store.close()
    PlainStore(tmp_path).close()
    assert os.listdir(tmp_path / "tmp") == []


def test_restart_keeps_everything(store: PlainStore, tmp_path: Path) -> None:
    for number in range(20):
        put(store, key_of(number), 1, bytes(number))
    post(store, key_of(3), 2, a="b")
    hashes = dict(store.suffix_hashes(0, 7))
    store.close()
    again = PlainStore(tmp_path)
    assert again.suffix_hashes(0, 7) == hashes
    assert again.stat(key_of(3)).metadata == {"a": "b"}
    again.close()


def test_reserve(tmp_path: Path) -> None:
    """At the reserve writes are refused; reading and deleting go on."""
    store = PlainStore(tmp_path)
    put(store, key_of(1), 1, b"data")
    free = store.usage().free_bytes
    store.close()
    full = PlainStore(tmp_path, reserve_bytes=free * 2)
    with pytest.raises(DiskFull, match="in reserve"):
        full.create(key_of(2))
    assert content(full, key_of(1)) == b"data"
    full.delete(key_of(1), at(2), NAME)
    full.close()
    roomy = PlainStore(tmp_path, reserve_percent=0.0)
    with pytest.raises(DiskFull):
        roomy.create(key_of(2), size=1 << 60)
    roomy.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, DeviceFailed), (errno.EROFS, DeviceFailed)],
)
@pytest.mark.parametrize("call", ["write", "fsync", "rename", "mkdir"])
def test_errors_of_the_system(
    store: PlainStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str, code: int, error: type[Exception]
) -> None:
    """Whatever fails: a domain error, nothing visible, nothing left behind."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    put(store, key_of(1), 1, b"before")
    writer = store.create(key_of(2))
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(error):
            _write_and_commit(writer, b"data")
    with pytest.raises(NotFound):
        store.stat(key_of(2))
    assert os.listdir(tmp_path / "tmp") == []
    assert content(store, key_of(1)) == b"before"
    if call == "fsync" and error is DeviceFailed:
        with pytest.raises(DeviceFailed, match="takes no writes"):
            store.create(key_of(2))
    else:
        put(store, key_of(2), 1, b"after")


def _write_and_commit(writer: Any, data: bytes) -> None:
    writer.write(data)
    writer.commit(PutRecord(NAME, at(1), "t"), footer_of(data))


def test_read_error(store: PlainStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    put(store, key_of(1), 1, b"data")
    with store.open(key_of(1)) as reader, monkeypatch.context() as patched:
        patched.setattr(os, "pread", fail)
        with pytest.raises(DeviceFailed):
            reader.read(0, 4)


def test_directories_are_synced_before_the_answer(store: PlainStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a first object: the file, each new directory's parent, and the directory that the file went into."""
    synced: list[str] = []
    real = os.fsync

    def note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}").split("/objects")[-1])
        real(fd)

    monkeypatch.setattr(os, "fsync", note)
    put(store, key_of(1), 1, b"data")
    assert "/tmp/" in synced[0]
    assert synced[1:] == ["", "/0", "/0/7", "/0/7/001", f"/0/7/001/{key_of(1).hex}"]


def test_every_truncation_is_found(store: PlainStore, tmp_path: Path) -> None:
    """A file cut off at any byte goes to quarantine and is never served."""
    put(store, key_of(0), 1, b"some data", color="blue")
    whole = data_file(str(tmp_path), key_of(0)).read_bytes()
    for cut in range(len(whole)):
        key = key_of(cut + 1)
        put(store, key, 1, b"some data", color="blue")
        os.truncate(data_file(str(tmp_path), key), cut)
        with pytest.raises(ChecksumMismatch if cut % 2 else NotFound):
            (store.verify if cut % 2 else store.stat)(key)
        with pytest.raises(NotFound):
            store.open(key)
    assert len(os.listdir(tmp_path / "quarantined")) == len(whole)


def test_every_flipped_byte_is_found(store: PlainStore, tmp_path: Path) -> None:
    put(store, key_of(0), 1, b"some data", color="blue")
    path = data_file(str(tmp_path), key_of(0))
    whole = path.read_bytes()
    for index in range(len(whole)):
        put(store, key_of(index + 1), 1, b"some data", color="blue")
        path = data_file(str(tmp_path), key_of(index + 1))
        path.write_bytes(whole[:index] + bytes((whole[index] ^ 0x10,)) + whole[index + 1 :])
        with pytest.raises(ChecksumMismatch):
            store.verify(key_of(index + 1))


@pytest.mark.parametrize("version", [0, 2])
def test_another_format_is_refused_and_left_alone(store: PlainStore, tmp_path: Path, version: int) -> None:
    """After a downgrade nothing is lost: what the other program wrote waits for it."""
    with format_version(version):
        put(store, key_of(1), 1, b"from the future")
    for read in (store.stat, store.open, store.verify):
        with pytest.raises(DeviceFailed, match=f"file has format version {version}, this program understands 1: run"):
            read(key_of(1))
    assert not os.listdir(tmp_path / "quarantined")
    with format_version(version):
        assert content(store, key_of(1)) == b"from the future"


@contextmanager
def format_version(version: int) -> Iterator[None]:
    """Files are written and read by a program of another format version meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_format, "VERSION", version)
        yield


def test_file_under_another_name(store: PlainStore, tmp_path: Path) -> None:
    put(store, key_of(1), 1, b"data")
    path = data_file(str(tmp_path), key_of(1))
    path.rename(path.with_name(f"{at(9).internal}.data"))
    with pytest.raises(NotFound):
        store.stat(key_of(1))


def test_damaged_post_and_tombstone(store: PlainStore, tmp_path: Path) -> None:
    """A damaged POST goes to quarantine and the object shows as it was PUT; writes go on."""
    for number, use in enumerate(
        (lambda k: store.stat(k), lambda k: post(store, k, 5, a="5"), lambda k: store.suffix_hashes(0, 7))
    ):
        key = key_of(number)
        put(store, key, 1, b"data", color="blue")
        post(store, key, 2, color="red")
        (path,) = tmp_path.glob(f"objects/0/7/*/{key.hex}/*.meta")
        os.truncate(path, 30)
        _use(use, key)
        assert store.stat(key).metadata == ({"a": "5"} if number == 1 else {"color": "blue"})
    store.delete(key_of(0), at(9), NAME)
    (path,) = tmp_path.glob(f"objects/0/7/*/{key_of(0).hex}/*.ts")
    os.truncate(path, 30)
    with pytest.raises(ChecksumMismatch):
        store.verify(key_of(0))
    assert len(os.listdir(tmp_path / "quarantined")) == 4


def _use(use: Callable[[Any], object], key: object) -> None:
    use(key)


def test_foreign_files_are_left_alone(store: PlainStore, tmp_path: Path) -> None:
    put(store, key_of(1), 1, b"data")
    directory = data_file(str(tmp_path), key_of(1)).parent
    for place in (directory, directory.parent, directory.parent.parent, tmp_path / "objects"):
        (place / "lost+found").mkdir()
    assert (store.policies(), store.partitions(0)) == ([0], [7])
    assert [key.digest for key in store.keys(0, 7)] == [key_of(1).digest]
    put(store, key_of(1), 2, b"newer")
    assert content(store, key_of(1)) == b"newer"


def test_older_version_left_by_a_crash_loses(store: PlainStore, tmp_path: Path) -> None:
    """Killed between the new file's arrival and the old one's removal: the new one counts, also after reclaim."""
    put(store, key_of(1), 1, b"old")
    path = data_file(str(tmp_path), key_of(1))
    old = path.read_bytes()
    store.delete(key_of(1), at(2), NAME)
    path.write_bytes(old)
    hashes = dict(store.suffix_hashes(0, 7))
    with pytest.raises(NotFound):
        store.open(key_of(1))
    assert store.reclaim(at(3)) == 1
    assert not path.exists()
    assert store.suffix_hashes(0, 7) == {} != hashes


def test_removal_keeps_what_decides_until_last(
    store: PlainStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, key_of(1), 1, b"old")
    path = data_file(str(tmp_path), key_of(1))
    old = path.read_bytes()
    store.delete(key_of(1), at(2), NAME)
    path.write_bytes(old)
    removed: list[str] = []
    real = os.unlink

    def unlink(name: str) -> None:
        removed.append(name)
        real(name)

    monkeypatch.setattr(os, "unlink", unlink)
    store.reclaim(at(3))
    assert [name.rsplit(".", 1)[1] for name in removed] == ["data", "ts"]


def test_failpoints_only_when_armed(store: PlainStore) -> None:
    seen = SimpleNamespace(count=0)

    def count() -> None:
        seen.count += 1

    failpoints.observe("synced", count)
    put(store, key_of(1), 1, b"data")
    failpoints.disarm()
    put(store, key_of(1), 2, b"data")
    assert seen.count == 1
