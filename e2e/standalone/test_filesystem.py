"""The file system for fsspec against a store with all of its processes: fsspec's own suite, and what it leaves out."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import fsspec
import pytest
from fsspec.tests.abstract import AbstractFixtures
from fsspec.tests.abstract.common import GLOB_EDGE_CASES_TESTS
from fsspec.tests.abstract.copy import AbstractCopyTests
from fsspec.tests.abstract.get import AbstractGetTests
from fsspec.tests.abstract.open import AbstractOpenTests
from fsspec.tests.abstract.pipe import AbstractPipeTests
from fsspec.tests.abstract.put import AbstractPutTests

from e2e.standalone.cluster import Cluster
from swiftlet.client.filesystem import SwiftletFileSystem

MIB = 1 << 20
CONTAINER = "filesystem"


@pytest.fixture(scope="module")
def options(cluster: Cluster) -> dict[str, Any]:
    return {
        "st_auth": cluster.auth_url,
        "st_user": cluster.user,
        "st_key": cluster.key,
        "client_options": {"segments_above_bytes": 2 * MIB, "stream_segment_bytes": MIB},
    }


@pytest.fixture(scope="module")
def made(options: dict[str, Any]) -> Iterator[SwiftletFileSystem]:
    fsspec.register_implementation("swiftlet", SwiftletFileSystem, clobber=True)
    filesystem = SwiftletFileSystem(**options)
    filesystem.makedirs(CONTAINER, exist_ok=True)
    yield filesystem
    fsspec.asyn.sync(filesystem.loop, filesystem.client.close)
    SwiftletFileSystem.clear_instance_cache()


class Fixtures(AbstractFixtures):
    """The file system under test, for the fixtures of fsspec's suite."""

    @pytest.fixture
    def fs(self, made: SwiftletFileSystem) -> SwiftletFileSystem:
        """Return the file system under test."""
        return made

    @pytest.fixture
    def fs_path(self) -> str:
        """Return the container in which tests write."""
        return CONTAINER

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        """Return the function that joins paths."""
        return lambda *parts: "/".join(str(part) for part in parts)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        """Return False: folders are prefixes of names."""
        return False


def some_patterns(test: Any) -> Any:
    """The same test with every third of fsspec's patterns: `TestGet` shows what the store finds for each of them."""
    again = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    cases = GLOB_EDGE_CASES_TESTS
    return pytest.mark.parametrize(cases["argnames"], cases["argvalues"][::3])(again)


class TestCopy(AbstractCopyTests, Fixtures):
    """fsspec's tests of copies within the store."""

    test_copy_glob_edge_cases = some_patterns(AbstractCopyTests.test_copy_glob_edge_cases)


class TestGet(AbstractGetTests, Fixtures):
    """fsspec's tests of downloads."""


class TestPut(AbstractPutTests, Fixtures):
    """fsspec's tests of uploads."""

    test_put_glob_edge_cases = some_patterns(AbstractPutTests.test_put_glob_edge_cases)


class TestOpen(AbstractOpenTests, Fixtures):
    """fsspec's tests of files that are opened."""


class TestPipe(AbstractPipeTests, Fixtures):
    """fsspec's tests of contents that are passed as bytes."""


def test_urls_lead_here(made: SwiftletFileSystem, options: dict[str, Any]) -> None:
    made.pipe(f"{CONTAINER}/url/a b.txt", b"line 1\nline 2\n")
    with fsspec.open(f"swiftlet://{CONTAINER}/url/a b.txt", "rt", **options) as file:
        assert file.readlines() == ["line 1\n", "line 2\n"]
    filesystem, path = fsspec.url_to_fs(f"swiftlet://{CONTAINER}/url/", **options)
    assert (filesystem is made, path) == (True, f"{CONTAINER}/url")
    assert made.unstrip_protocol(path) == f"swiftlet://{CONTAINER}/url"


def test_another_key_is_another_file_system(made: SwiftletFileSystem, options: dict[str, Any]) -> None:
    other = SwiftletFileSystem(**{**options, "st_key": "wrong"})
    assert other is not made
    with pytest.raises(PermissionError):
        other.ls("")
    fsspec.asyn.sync(other.loop, other.client.close)


def test_what_there_is(made: SwiftletFileSystem) -> None:
    root = f"{CONTAINER}/tree"
    made.pipe({f"{root}/a": b"1", f"{root}/b/c": b"22", f"{root}/b/d/e": b"333", f"{root}x": b""})
    assert made.ls(root, detail=False) == [f"{root}/a", f"{root}/b"]
    assert made.ls(f"{root}/a", detail=False) == [f"{root}/a"]
    assert made.find(root) == [f"{root}/a", f"{root}/b/c", f"{root}/b/d/e"]
    assert made.find(root, maxdepth=1, withdirs=True) == [root, f"{root}/a", f"{root}/b"]
    assert made.find(f"{root}/a") == [f"{root}/a"]
    assert made.find(f"{root}/none") == []
    assert made.glob(f"{root}/**/e") == [f"{root}/b/d/e"]
    assert made.du(root) == 6
    assert (made.isdir(root), made.isfile(root), made.isfile(f"{root}/a"), made.exists(f"{root}/q")) == (
        True,
        False,
        True,
        False,
    )
    assert CONTAINER in made.ls("", detail=False)
    assert made.info(CONTAINER)["type"] == "directory"
    assert made.ukey(f"{root}/a") != made.ukey(f"{root}/b/c")
    assert [path for path, _, _ in made.walk(root)] == [root, f"{root}/b", f"{root}/b/d"]
    with pytest.raises(FileNotFoundError):
        made.ls(f"{root}/q")
    with pytest.raises(IsADirectoryError):
        made.rm(root)
    made.rm(root, recursive=True)
    assert (made.exists(root), made.exists(f"{root}x")) == (False, True)


@pytest.mark.parametrize("recursive", [True, False])
def test_moves(made: SwiftletFileSystem, recursive: bool) -> None:
    """The suite's own tests of moves are of the local file system."""
    made.pipe(f"{CONTAINER}/from/a", b"1")
    made.mv(f"{CONTAINER}/from/a", f"{CONTAINER}/to/b", recursive=recursive)
    assert (made.exists(f"{CONTAINER}/from/a"), made.cat_file(f"{CONTAINER}/to/b")) == (False, b"1")
    with pytest.raises(FileNotFoundError):
        made.mv(f"{CONTAINER}/from/a", f"{CONTAINER}/to/c", recursive=recursive)
    made.rm(f"{CONTAINER}/to", recursive=True)


def test_containers_are_folders(made: SwiftletFileSystem) -> None:
    made.mkdir("filesystem-new/below")
    with pytest.raises(FileExistsError):
        made.mkdir("filesystem-new")
    made.pipe("filesystem-new/a", b"")
    with pytest.raises(OSError, match="409"):
        made.rmdir("filesystem-new")
    made.rm("filesystem-new", recursive=True)
    assert not made.exists("filesystem-new")
    with pytest.raises(FileNotFoundError):
        made.pipe("filesystem-new/a", b"")


def test_ranges(made: SwiftletFileSystem) -> None:
    path = f"{CONTAINER}/ranges"
    made.pipe(path, b"0123456789")
    assert [made.cat_file(path, *ends) for ends in [(2, 4), (7, 99), (-3, None), (None, -7), (-4, -2), (5, 5)]] == [
        b"23",
        b"789",
        b"789",
        b"012",
        b"67",
        b"",
    ]
    assert made.cat_ranges([path, path], [0, 8], [2, 10]) == [b"01", b"89"]
    assert made.tail(path, 2) == b"89"
    with made.open(path, block_size=3) as file:
        assert (file.read(2), file.seek(8), file.read()) == (b"01", 8, b"89")


def test_a_file_stays_one_version(made: SwiftletFileSystem) -> None:
    path = f"{CONTAINER}/version"
    made.pipe(path, b"1" * 100)
    with made.open(path, block_size=10, cache_type="none") as file:
        assert file.read(10) == b"1" * 10
        made.pipe(path, b"2" * 100)
        with pytest.raises(OSError, match="another version"):
            file.read(10)


def test_large_files_are_streams(made: SwiftletFileSystem) -> None:
    path = f"{CONTAINER}/stream"
    pieces = [bytes([number]) * MIB for number in range(5)]
    with made.open(path, "wb", block_size=MIB // 2) as file:
        for piece in pieces:
            file.write(piece)
        assert not made.exists(path)
    assert made.cat_file(path) == b"".join(pieces)
    with made.open(path, "ab") as file:
        assert file.tell() == 5 * MIB
        file.write(b"end")
    assert made.cat_file(path, start=5 * MIB) == b"end"
    made.rm(path)
    assert [name for name in made.find(f"{CONTAINER}_segments") if "/stream/" in name] == []


def test_a_block_that_fails_stores_nothing(made: SwiftletFileSystem) -> None:
    path = f"{CONTAINER}/failed"

    def write() -> None:
        with made.open(path, "wb", block_size=100) as file:
            file.write(b"x" * 1000)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write()
    assert not made.exists(path)
    with made.transaction:
        with made.open(path, "wb") as file:
            file.write(b"later")
        assert not made.exists(path)
    assert made.cat_file(path) == b"later"
    with made.open(f"{CONTAINER}/exclusive", "xb") as file:
        file.write(b"1")
    with pytest.raises(FileExistsError):
        made.open(f"{CONTAINER}/exclusive", "xb")


def test_the_store_itself_refuses_to_replace_what_is_to_be_new(made: SwiftletFileSystem, tmp_path: Path) -> None:
    """Two writers may both have found nothing there."""
    path = f"{CONTAINER}/once"
    made.pipe_file(path, b"first", mode="create")
    with pytest.raises(FileExistsError):
        made.pipe_file(path, b"second", mode="create")
    (tmp_path / "file").write_bytes(b"third")
    with pytest.raises(FileExistsError):
        made.put_file(str(tmp_path / "file"), path, mode="create")
    late = f"{CONTAINER}/raced"
    file = made.open(late, "xb")
    file.write(b"fourth")
    made.pipe_file(late, b"earlier")
    with pytest.raises(FileExistsError):
        file.close()
    assert (made.cat_file(path), made.cat_file(late)) == (b"first", b"earlier")


def read_in_child(filesystem: SwiftletFileSystem, results: Any) -> None:
    results.put(filesystem.cat_file(f"{CONTAINER}/forked"))


def test_forks_and_pickles(made: SwiftletFileSystem) -> None:
    made.pipe(f"{CONTAINER}/forked", b"f")
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=read_in_child, args=(made, results))
    child.start()
    child.join(60)
    assert (child.exitcode, results.get()) == (0, b"f")
    assert made.cat_file(f"{CONTAINER}/forked") == b"f"
    assert pickle.loads(pickle.dumps(made)).cat_file(f"{CONTAINER}/forked") == b"f"


async def test_asynchronous(options: dict[str, Any]) -> None:
    filesystem = SwiftletFileSystem(asynchronous=True, skip_instance_cache=True, **options)
    await filesystem._pipe_file(f"{CONTAINER}/asynchronous", b"a")
    assert await filesystem._cat_file(f"{CONTAINER}/asynchronous") == b"a"
    await filesystem.client.close()


def test_put_and_get_with_progress(made: SwiftletFileSystem, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 3 * MIB)
    callback = fsspec.callbacks.Callback()
    made.put_file(str(file), f"{CONTAINER}/progress", callback=callback)
    assert (callback.size, callback.value) == (3 * MIB, 3 * MIB)
    back = fsspec.callbacks.Callback()
    made.get_file(f"{CONTAINER}/progress", str(tmp_path / "back"), callback=back)
    assert (back.value, (tmp_path / "back").read_bytes() == file.read_bytes()) == (3 * MIB, True)
    made.rm(f"{CONTAINER}/progress")
