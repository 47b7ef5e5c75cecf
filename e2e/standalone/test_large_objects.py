"""Large objects with python-swiftclient, as its users make them: segmented uploads, static and dynamic."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from swiftclient.service import SwiftCopyObject, SwiftService, SwiftUploadObject

from e2e.standalone.cluster import Cluster
from e2e.standalone.wire import Client

MIB = 1 << 20
SIZE = 40 * MIB + 12_345
SEGMENT = 4 * MIB


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("large") / "whole.bin"
    block = random.Random(7).randbytes(MIB)
    with path.open("wb") as out:
        for start in range(0, SIZE, MIB):
            out.write((start.to_bytes(8, "big") + block[8:])[: SIZE - start])
    yield path
    path.unlink()


@pytest.fixture
def swift(cluster: Cluster) -> Iterator[SwiftService]:
    options = {"auth": cluster.auth_url, "user": cluster.user, "key": cluster.key, "auth_version": "1", "retries": 0}
    with SwiftService(options=options) as service:
        yield service


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint, cluster.user, cluster.key)


def md5(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def all_well(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of an operation, none of them a failure."""
    listed = list(results)
    assert all(result["success"] for result in listed), [r for r in listed if not r["success"]]
    return listed


def upload(swift: SwiftService, container: str, file: Path, *, use_slo: bool) -> None:
    options = {"segment_size": SEGMENT, "use_slo": use_slo, "segment_container": f"{container}_segments"}
    all_well(swift.upload(container, [SwiftUploadObject(str(file), object_name="whole.bin")], options))


def stat(swift: SwiftService, container: str) -> dict[str, str]:
    (result,) = all_well(swift.stat(container, ["whole.bin"]))
    headers: dict[str, str] = result["headers"]
    return headers


def names(client: Client, container: str) -> list[str]:
    return client.call("GET", container).text.split()


@pytest.mark.parametrize("use_slo", [True, False], ids=["static", "dynamic"])
def test_a_segmented_upload_comes_back_whole(
    swift: SwiftService, client: Client, file: Path, tmp_path: Path, use_slo: bool
) -> None:
    container = "static" if use_slo else "dynamic"
    upload(swift, container, file, use_slo=use_slo)
    segments = names(client, f"{container}_segments")
    assert len(segments) == SIZE // SEGMENT + 1

    headers = stat(swift, container)
    assert int(headers["content-length"]) == SIZE
    tags = [row["hash"] for row in client.call("GET", f"{container}_segments", query="format=json").json()]
    assert headers["etag"].strip('"') == hashlib.md5("".join(tags).encode(), usedforsecurity=False).hexdigest()
    if use_slo:
        assert headers["x-static-large-object"] == "True"
        (row,) = client.call("GET", container, query="format=json").json()
        assert row["bytes"] == SIZE
    else:
        assert headers["x-object-manifest"].startswith(f"{container}_segments/")

    out = tmp_path / "back.bin"
    all_well(swift.download(container, ["whole.bin"], {"out_file": str(out)}))
    assert md5(out) == md5(file)

    middle = client.call("GET", f"{container}/whole.bin", {"Range": f"bytes={SEGMENT - 5}-{SEGMENT + 4}"})
    with file.open("rb") as opened:
        opened.seek(SEGMENT - 5)
        assert (middle.status, middle.body) == (206, opened.read(10))

    all_well(swift.delete(container, ["whole.bin"]))
    assert names(client, container) == []
    assert names(client, f"{container}_segments") == []


def test_uploads_again_only_what_changed(swift: SwiftService, client: Client, file: Path) -> None:
    """`skip_identical` compares a large object's manifest with the file."""
    upload(swift, "again", file, use_slo=True)
    before = stat(swift, "again")["x-timestamp"]
    options = {"segment_size": SEGMENT, "use_slo": True, "skip_identical": True, "segment_container": "again_segments"}
    all_well(swift.upload("again", [SwiftUploadObject(str(file), object_name="whole.bin")], options))
    assert stat(swift, "again")["x-timestamp"] == before
    all_well(swift.delete("again", ["whole.bin"]))


def test_metadata_and_copies(swift: SwiftService, client: Client, file: Path) -> None:
    upload(swift, "copies", file, use_slo=True)
    all_well(swift.post("copies", ["whole.bin"], {"meta": ["Color:red"]}))
    headers = stat(swift, "copies")
    assert headers["x-object-meta-color"] == "red"
    assert int(headers["content-length"]) == SIZE

    all_well(swift.copy("copies", [SwiftCopyObject("whole.bin", {"destination": "/copies/plain.bin"})]))
    (result,) = all_well(swift.stat("copies", ["plain.bin"]))
    assert result["headers"]["etag"] == md5(file)
    assert result["headers"]["x-object-meta-color"] == "red"
    assert "x-static-large-object" not in result["headers"]

    headers = {"Destination": "copies/manifest.bin"}
    assert client.call("COPY", "copies/whole.bin", headers, query="multipart-manifest=get").status == 201
    assert client.call("HEAD", "copies/manifest.bin").headers["X-Static-Large-Object"] == "True"

    answer = client.call(
        "DELETE", "copies/whole.bin", {"Accept": "application/json"}, query="multipart-manifest=delete"
    )
    report = json.loads(answer.body)
    assert (report["Response Status"], report["Number Deleted"]) == ("200 OK", SIZE // SEGMENT + 2)
    assert client.call("GET", "copies/manifest.bin").status == 409
    for name in ("plain.bin", "manifest.bin"):
        assert client.call("DELETE", f"copies/{name}").status == 204
