"""python-swiftclient's `swift` command: 2 GiB in segments, static and dynamic, metadata, and temporary URLs."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.clients.conftest import Run, md5, random_file
from e2e.standalone.cluster import Cluster
from e2e.standalone.wire import Client

GIB = 1 << 30
SEGMENT = 256 << 20
SWIFT = Path(sys.executable).with_name("swift")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a file of 2 GiB."""
    path = tmp_path_factory.mktemp("large") / "large.bin"
    random_file(path, 2 * GIB, 3)
    yield path
    path.unlink()


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_two_gib_in_static_segments(run: Run, client: Client, large: Path, tmp_path: Path) -> None:
    segments = ("--use-slo", "--segment-size", str(SEGMENT), "--segment-threads", "4")
    run(SWIFT, "upload", "slo", large, "--object-name", "large.bin", *segments)
    assert len(client.call("GET", "slo_segments").text.split()) == 2 * GIB // SEGMENT
    stat = run(SWIFT, "stat", "slo", "large.bin")
    assert f"Content Length: {2 * GIB}" in stat
    assert client.call("HEAD", "slo/large.bin").headers["X-Static-Large-Object"] == "True"

    run(SWIFT, "post", "slo", "large.bin", "-m", "Color:red")
    assert "Meta Color: red" in run(SWIFT, "stat", "slo", "large.bin")

    back = tmp_path / "back.bin"
    run(SWIFT, "download", "slo", "large.bin", "-o", back)
    assert md5(back) == md5(large)
    back.unlink()
    run(SWIFT, "delete", "slo", "large.bin")
    assert client.call("GET", "slo_segments").text == ""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_dynamic_large_object(run: Run, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "dynamic.bin"
    random_file(file, 70_000_000, 4)
    run(SWIFT, "upload", "dlo", file, "--object-name", "whole", "--use-dlo", "--segment-size", "16000000")
    head = client.call("HEAD", "dlo/whole").headers
    assert head["X-Object-Manifest"].startswith("dlo_segments/")
    assert int(head["Content-Length"]) == file.stat().st_size
    run(SWIFT, "download", "dlo", "whole", "-o", tmp_path / "back")
    assert md5(tmp_path / "back") == md5(file)
    run(SWIFT, "delete", "dlo", "whole")
    assert client.call("GET", "dlo_segments").text == ""


def test_temporary_urls_for_curl(run: Run, cluster: Cluster, client: Client, tmp_path: Path) -> None:
    key = "a key of the account"
    run(SWIFT, "post", "-m", f"Temp-URL-Key:{key}")
    run(SWIFT, "post", "temporary")
    path = f"{client.base}/temporary/o"
    put = run(SWIFT, "tempurl", "--digest", "sha512", "PUT", "600", path, key).strip()
    file = tmp_path / "file"
    file.write_bytes(b"by curl")
    run("curl", "-sS", "--fail", "-T", file, cluster.endpoint + put)
    get = run(SWIFT, "tempurl", "--digest", "sha256", "GET", "600", path, key).strip()
    assert run("curl", "-sS", "--fail", cluster.endpoint + get) == "by curl"
    refused = subprocess.run(
        ["curl", "-sS", "-o", os.devnull, "-w", "%{http_code}", "-X", "DELETE", cluster.endpoint + get],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert refused.stdout == "401"
    assert client.call("HEAD", "temporary/o").headers["Etag"] == hashlib.md5(b"by curl").hexdigest()
