"""`swiftlet cp`, `ls`, `cat`, `stat`, `rm` and `sync` against a store with all of its processes."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from e2e.standalone.cluster import Cluster, environment
from swiftlet.client import V1, Client, Conditions, NotFound
from swiftlet.client.commands.main import run
from swiftlet.client.loops import run as wait
from swiftlet.client.values import ObjectRequest

MIB = 1 << 20


@pytest.fixture(scope="module")
def store(cluster: Cluster) -> Iterator[Client]:
    with Client(V1(auth_url=cluster.auth_url, user=cluster.user, key=cluster.key)) as made:
        made.create_container("commands")
        yield made


@pytest.fixture(autouse=True)
def credentials(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OS_", "ST_", "SWIFTLET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ST_AUTH", cluster.auth_url)
    monkeypatch.setenv("ST_USER", cluster.user)
    monkeypatch.setenv("ST_KEY", cluster.key)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for number, name in enumerate(["a.txt", "b/c.bin", "b/d e/für.bin", "z"]):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(number).randbytes(1000 * number))
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def names(store: Client, prefix: str) -> list[str]:
    return [entry.name for entry in store.list("commands", prefix)]


def test_a_file_there_and_back(store: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(b"photo")
    os.utime(file, ns=(10**18, 10**18 + 123_456_789))
    assert run(["cp", str(file), "swift://commands/one/", "--meta", "Colour=red"]) == 0
    info = store.head("commands", "one/photo.jpg")
    assert (info.content_type, info.metadata["colour"]) == ("image/jpeg", "red")
    assert run(["cp", "swift://commands/one/photo.jpg", f"{tmp_path}/back"]) == 0
    assert (tmp_path / "back").read_bytes() == b"photo"
    assert (tmp_path / "back").stat().st_mtime_ns == 10**18 + 123_456_789
    assert run(["cp", str(file), "swift://commands/one/photo.jpg", "-n"]) == 1
    assert "412" in capfd.readouterr().err
    assert run(["cp", "-n", "swift://commands/one/photo.jpg", "swift://commands/two"]) == 0
    assert run(["cp", "-n", "swift://commands/one/photo.jpg", "swift://commands/two"]) == 1
    assert run(["cat", "swift://commands/two", "swiftlet://commands/two"]) == 0
    assert capfd.readouterr().out == "photophoto"


def test_trees(store: Client, tree: Path, tmp_path: Path) -> None:
    assert run(["cp", "-r", str(tree), "swift://commands/tree"]) == 0
    assert names(store, "tree") == ["tree/a.txt", "tree/b/c.bin", "tree/b/d e/für.bin", "tree/z"]
    store.put("commands", "treetop", b"")
    assert run(["cp", "-r", "swift://commands/tree", str(tmp_path / "back")]) == 0
    assert contents(tmp_path / "back") == contents(tree)
    assert run(["cp", "-r", "swift://commands/tree/", "swift://commands/copied/"]) == 0
    assert len(names(store, "copied/")) == 4
    assert run(["rm", "-rq", "swift://commands/copied", "swift://commands/tree"]) == 0
    assert names(store, "tree") == ["treetop"]


def test_standard_input_and_output(
    store: Client, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"piped")))
    assert run(["cp", "-", "swift://commands/stream"]) == 0
    assert run(["cp", "swift://commands/stream", "-"]) == 0
    assert capfd.readouterr().out == "piped"


def test_listings(store: Client, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("list/a", "list/b/c", "list/b/d"):
        store.put("commands", name, b"12345")
    assert run(["ls"]) == 0
    assert "commands" in capfd.readouterr().out.splitlines()
    assert run(["ls", "swift://commands/list/"]) == 0
    assert capfd.readouterr().out.splitlines() == ["list/a", "list/b/"]
    assert run(["ls", "-lrH", "swift://commands/list/"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["list/a", "list/b/c", "list/b/d"]
    assert lines[0].split()[:2] == ["5", "B"]
    assert run(["ls", "--json", "swift://commands/list/"]) == 0
    documents = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert (documents[0]["bytes"], documents[1]) == (5, {"prefix": "list/b/"})
    assert run(["ls", "-l"]) == 0
    assert run(["stat", "swift://commands/list/a"]) == 0
    assert "content-length: 5" in capfd.readouterr().out
    assert run(["stat", "--json", "swift://commands"]) == 0
    assert json.loads(capfd.readouterr().out)["place"] == "swift://commands"
    assert run(["stat"]) == 0


def test_sync_copies_what_differs(store: Client, tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    there = "swift://commands/sync"
    assert run(["sync", str(tree), there]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 4
    assert run(["sync", str(tree), there]) == 0
    assert capfd.readouterr().out == ""
    # The same size and the same time of change, and other bytes.
    status = (tree / "z").stat()
    (tree / "z").write_bytes(bytes(3000))
    os.utime(tree / "z", ns=(status.st_mtime_ns, status.st_mtime_ns))
    (tree / "a.txt").unlink()
    assert run(["sync", "--dry-run", "--delete", str(tree), there]) == 0
    assert capfd.readouterr().out.splitlines() == [f"{tree}/z -> {there}/z", f"delete {there}/a.txt"]
    assert run(["sync", str(tree), there, "-q"]) == 0
    assert store.get("commands", "sync/z").data == bytes(3000)
    assert "sync/a.txt" in names(store, "sync/")
    back = tmp_path / "back"
    assert run(["sync", there, str(back)]) == 0
    assert contents(back) == {**contents(tree), "a.txt": b""}
    assert run(["sync", "--delete", str(tree), there]) == 0
    assert run(["sync", "--delete", there, str(back)]) == 0
    assert contents(back) == contents(tree)
    capfd.readouterr()
    assert run(["sync", "--delete", str(tmp_path / "none"), there]) == 1
    assert "is no folder" in capfd.readouterr().err
    assert len(names(store, "sync/")) == 3


def test_sync_knows_large_objects(store: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    content = random.Random(5).randbytes(3 * MIB)
    (folder / "large").write_bytes(content)
    store.create_container("commands_segments")
    entries = []
    for number in range(3):
        part = store.put("commands_segments", f"part{number}", content[number * MIB : (number + 1) * MIB])
        entries.append({"path": f"/commands_segments/part{number}", "etag": part.etag, "size_bytes": MIB})
    wait(store.asynchronous._account.put_manifest(ObjectRequest("commands", "slo/large"), entries, []))
    assert run(["sync", str(folder), "swift://commands/slo"]) == 0
    assert capfd.readouterr().out == ""
    (folder / "large").write_bytes(content[:-1] + b"x")
    assert run(["sync", "--dry-run", str(folder), "swift://commands/slo"]) == 0
    assert "slo/large" in capfd.readouterr().out
    assert run(["rm", "-q", "swift://commands/slo/large"]) == 0
    assert list(store.list("commands_segments", "part")) == []


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/abs", "a//b", "a/./b"])
def test_no_name_leads_out_of_the_folder(
    store: Client, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    store.put("commands", f"names/{name}", b"x")
    store.put("commands", "names/fine", b"x")
    try:
        assert run(["cp", "-r", "swift://commands/names/", str(tmp_path / "in")]) == 1
        assert "can't be the name of a file" in capfd.readouterr().err
        assert run(["sync", "swift://commands/names", str(tmp_path / "in")]) == 1
    finally:
        store.delete("commands", f"names/{name}")
    assert contents(tmp_path) == {"in/fine": b"x"}


def test_containers_are_made_when_asked_to(store: Client, tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["cp", "-r", str(tree), "swift://commands-new"]) == 1
    assert "there is no container commands-new; --create makes it" in capfd.readouterr().err
    assert run(["sync", str(tree), "swift://commands-new"]) == 1
    assert "--create makes it" in capfd.readouterr().err
    assert run(["cp", "-r", "--create", str(tree), "swift://commands-new"]) == 0
    assert run(["rm", "-r", "--dry-run", "swift://commands-new"]) == 0
    assert len(list(store.list("commands-new"))) == 4
    assert run(["rm", "-r", "swift://commands-new"]) == 0
    with pytest.raises(NotFound):
        store.container("commands-new")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["cp", "a", "b"], 2, "neither side is in the store"),
        (["cp", "swift://commands", "."], 2, "-r copies what is in it"),
        (["cp", "a", "b", "swift://commands/c"], 2, "add a slash"),
        (["cp", "none", "swift://commands/"], 1, "none: No such file or directory"),
        (["cp", "swift://commands/none", "x"], 1, "404"),
        (["cp", "-r", "swift://commands/none", "x"], 1, "nothing below"),
        (["cp", "--meta", "x", "a", "swift://commands/"], 2, "NAME=VALUE"),
        (["cat", "a"], 2, "not in the store"),
        (["cat", "swift://commands/none"], 1, "404"),
        (["ls", "swift://none"], 1, "404"),
        (["stat", "swift://commands/none"], 1, "404"),
        (["rm", "swift://commands"], 2, "-r deletes"),
        (["rm", "-r", "swift://commands/none"], 1, "nothing below"),
        (["rm", "swift://commands/none"], 1, "404"),
        (["sync", "a", "b"], 2, "one side is a folder"),
        (["nonsense"], 2, "No such command"),
    ],
)
def test_errors_are_told_in_a_line(
    store: Client,
    arguments: list[str],
    code: int,
    message: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == code
    error = capfd.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_credentials_that_are_wrong_or_missing(
    store: Client, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ST_KEY", "wrong")
    assert run(["ls"]) == 1
    assert "check ST_USER and ST_KEY" in capfd.readouterr().err
    for name in ("ST_AUTH", "ST_USER", "ST_KEY"):
        monkeypatch.delenv(name)
    assert run(["ls"]) == 1
    assert "there are no credentials: set ST_AUTH" in capfd.readouterr().err
    for name, value in (("key", cluster.key), ("user", cluster.user), ("authUrl", cluster.auth_url)):
        (tmp_path / name).write_text(value)
    assert run(["ls", "--credentials", str(tmp_path)]) == 0
    monkeypatch.setenv("SWIFTLET_CREDENTIALS", str(tmp_path))
    assert run(["ls"]) == 0


def test_the_command_of_the_services_has_them_too_and_pipes_may_close(store: Client, cluster: Cluster) -> None:
    store.put("commands", "long", bytes(4 * MIB), conditions=Conditions())
    command = [sys.executable, "-m", "swiftlet.main", "cat", "swift://commands/long"]
    login = {"ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**environment(), **login}
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10) == bytes(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141
