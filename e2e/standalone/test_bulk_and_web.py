"""Archives, lists to delete and web sites, with curl and python-swiftclient."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import subprocess
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from swiftclient.service import SwiftService

from e2e.standalone.cluster import Cluster
from e2e.standalone.wire import Client


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint, cluster.user, cluster.key)


@pytest.fixture
def container(client: Client) -> Iterator[str]:
    name = f"bulk-{uuid.uuid4().hex[:12]}"
    assert client.call("PUT", name).status == 201
    yield name
    names = [f"{name}/{row['name']}" for row in client.call("GET", name, query="format=json").json()]
    client.call("POST", "", query="bulk-delete", body="\n".join([*names, name]).encode())
    assert client.call("HEAD", name).status == 404


def archive(tmp_path: Path, files: dict[str, bytes], pack: Callable[[bytes], bytes] = bytes) -> Path:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as out:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    path = tmp_path / "files"
    path.write_bytes(pack(raw.getvalue()))
    return path


FILES = {f"dir{number % 7}/{number}.txt": b"%d" % number * 1000 for number in range(100)} | {"big": bytes(5_000_000)}


@pytest.mark.parametrize(("kind", "pack"), [("tar", bytes), ("tar.gz", gzip.compress), ("tar.bz2", bz2.compress)])
def test_curl_uploads_an_archive(
    cluster: Cluster, client: Client, container: str, tmp_path: Path, kind: str, pack: Callable[[bytes], bytes]
) -> None:
    path = archive(tmp_path, FILES, pack)
    url = f"{client.endpoint}{client.base}/{container}?extract-archive={kind}"
    headers = [f"X-Auth-Token: {client.token}", "Accept: application/json"]
    options = [option for header in headers for option in ("-H", header)]
    ran = subprocess.run(["curl", "-sS", "-T", str(path), *options, url], capture_output=True, check=True, timeout=120)
    assert json.loads(ran.stdout) == {
        "Number Files Created": len(FILES),
        "Response Status": "201 Created",
        "Response Body": "",
        "Errors": [],
    }
    assert client.call("GET", f"{container}/big").body == FILES["big"]
    assert len(client.call("GET", container, query="format=json").json()) == len(FILES)


def test_the_swift_command_deletes_in_bulk(cluster: Cluster, client: Client, tmp_path: Path) -> None:
    name = f"bulk-{uuid.uuid4().hex[:12]}"
    path = archive(tmp_path, {f"{number} \u00e9": b"x" for number in range(120)})
    assert client.call("PUT", name, query="extract-archive=tar", body=path.read_bytes()).status == 200
    options = {"auth": cluster.auth_url, "user": cluster.user, "key": cluster.key, "auth_version": "1", "retries": 0}
    with SwiftService(options=options) as swift:
        results = list(swift.delete(container=name))
    assert all(result["success"] for result in results), results
    assert "bulk_delete" in {result["action"] for result in results}
    assert client.call("HEAD", name).status == 404


def test_a_site_in_a_browser_without_a_token(client: Client, container: str) -> None:
    settings = {
        "X-Container-Read": ".r:*,.rlistings",
        "X-Container-Meta-Web-Index": "index.html",
        "X-Container-Meta-Web-Error": "error.html",
        "X-Container-Meta-Web-Listings": "true",
    }
    assert client.call("POST", container, headers=settings).status == 204
    for name, data in {"index.html": b"<p>home", "docs/a b.txt": b"a", "404error.html": b"<p>gone"}.items():
        assert client.call("PUT", f"{container}/{name}", body=data).status == 201
    base = f"{client.endpoint}{client.base}/{container}"
    assert browse(base) == (200, base + "/", "<p>home")
    status, where, page = browse(base + "/docs")
    assert (status, where) == (200, base + "/docs/")
    assert '<a href="./a%20b%2Etxt">a b.txt</a>' in page
    assert browse(where + "a%20b%2Etxt")[2] == "a"
    assert browse(base + "/absent") == (404, base + "/absent", "<p>gone")


def browse(url: str) -> tuple[int, str, str]:
    """Status, where redirects led to, and the page, as curl sees them without a token."""
    command = ["curl", "-sSL", "-w", "\n%{http_code} %{url_effective}", url]
    ran = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True)
    page, _, rest = ran.stdout.rpartition("\n")
    status, _, where = rest.partition(" ")
    return int(status), where, page
