"""What the Swift API promises is tested against a running cluster: accounts, containers, objects, listings."""

from __future__ import annotations

import hashlib
import json
import re
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlsplit

import pytest

from e2e.standalone.cluster import Cluster
from e2e.standalone.wire import Client, exchange, raw


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint, cluster.user, cluster.key)


@pytest.fixture
def container(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty container of the test's own, emptied and deleted afterwards."""
    name = re.sub(r"[^a-z0-9-]", "-", request.node.name.lower())[:100]
    assert client.call("PUT", name).status == 201
    yield name
    for row in client.call("GET", name, query="format=json").json():
        assert client.call("DELETE", f"{name}/{row['name']}").status == 204
    assert client.call("DELETE", name).status == 204


def etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def names(client: Client, container: str, query: str = "") -> list[str]:
    rows = client.call("GET", container, query="format=json&" + query).json()
    return [row.get("name", row.get("subdir")) for row in rows]


# Objects


def test_an_object_comes_back_as_it_went(client: Client, container: str) -> None:
    data = bytes(range(256)) * 40
    headers = {
        "Content-Type": "image/x-thing; charset=odd",
        "X-Object-Meta-Color": "b\u00e4rig",
        "x-object-meta-two-words": "2",
        "Content-Encoding": "gzip",
        "Content-Disposition": 'attachment; filename="a.gz"',
        "ETag": etag(data),
    }
    created = client.call("PUT", f"{container}/o", headers, data)
    assert created.status == 201
    assert created.headers["Etag"] == etag(data)
    assert created.headers["X-Trans-Id"] == created.headers["X-Openstack-Request-Id"]
    for method, body in (("GET", data), ("HEAD", b"")):
        answer = client.call(method, f"{container}/o")
        assert answer.status == 200
        assert answer.body == body
        assert answer.headers["Content-Length"] == str(len(data))
        assert answer.headers["Etag"] == etag(data)
        assert answer.headers["Content-Type"] == "image/x-thing; charset=odd"
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["Content-Disposition"] == 'attachment; filename="a.gz"'
        assert answer.headers["X-Object-Meta-Color"].encode("latin-1").decode() == "b\u00e4rig"
        assert answer.headers["X-Object-Meta-Two-Words"] == "2"
        assert re.fullmatch(r"\d{10}\.\d{5}", answer.headers["X-Timestamp"])
        assert answer.headers["Last-Modified"] == created.headers["Last-Modified"]
        assert answer.headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_sizes_around_every_boundary(client: Client, container: str, size: int) -> None:
    data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    answer = client.call("PUT", f"{container}/o", body=data)
    assert (answer.status, answer.headers["Etag"]) == (201, etag(data))
    assert client.call("GET", f"{container}/o").body == data
    row = client.call("GET", container, query="format=json").json()[0]
    assert (row["bytes"], row["hash"]) == (size, etag(data))


@pytest.mark.parametrize("size", [0, 100, 3_000_000])
def test_chunked_upload(client: Client, container: str, size: int) -> None:
    data = b"z" * size
    pieces = [data[i : i + 70_000] for i in range(0, size, 70_000)]
    body = b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in pieces) + b"0\r\n\r\n"
    headers: dict[str, str | bytes] = {"X-Auth-Token": client.token, "Transfer-Encoding": "chunked"}
    answer = exchange(client.endpoint, raw("PUT", f"{client.base}/{container}/o", headers, body, length=False))
    assert answer.status == 201
    assert client.call("GET", f"{container}/o").body == data


def test_expect_100_continue_is_answered_only_when_the_upload_will_be_read(client: Client, container: str) -> None:
    headers: dict[str, str | bytes] = {"X-Auth-Token": client.token, "Expect": "100-continue"}
    answer = exchange(client.endpoint, raw("PUT", f"{client.base}/{container}/o", headers, b"data"))
    assert answer.status == 201
    refused = raw("PUT", f"{client.base}/missing/o", {**headers, "Content-Length": "4"}, length=False)
    assert exchange(client.endpoint, refused).status == 404


def test_content_type_is_guessed_from_the_name(client: Client, container: str) -> None:
    for name, expected in (("a.txt", "text/plain"), ("b.json", "application/json"), ("c", "application/octet-stream")):
        client.call("PUT", f"{container}/{name}", body=b"x")
        assert client.call("HEAD", f"{container}/{name}").headers["Content-Type"] == expected
    client.call("PUT", f"{container}/d.html", {"Content-Type": "x/y", "X-Detect-Content-Type": "true"}, b"x")
    assert client.call("HEAD", f"{container}/d.html").headers["Content-Type"] == "text/html"


def test_overwrite_replaces_data_and_metadata(client: Client, container: str) -> None:
    client.call("PUT", f"{container}/o", {"X-Object-Meta-A": "1"}, b"old")
    client.call("PUT", f"{container}/o", {"X-Object-Meta-B": "2"}, b"newer")
    answer = client.call("GET", f"{container}/o")
    assert answer.body == b"newer"
    assert "X-Object-Meta-A" not in answer.headers
    assert answer.headers["X-Object-Meta-B"] == "2"
    assert names(client, container) == ["o"]
    assert client.call("HEAD", container).headers["X-Container-Bytes-Used"] == "5"


def test_post_replaces_metadata_and_keeps_the_type(client: Client, container: str) -> None:
    headers = {"X-Object-Meta-A": "1", "Content-Type": "a/b", "Content-Encoding": "gzip"}
    client.call("PUT", f"{container}/o", headers, b"data")
    assert client.call("POST", f"{container}/o", {"X-Object-Meta-B": "2"}).status == 202
    answer = client.call("GET", f"{container}/o")
    assert answer.body == b"data"
    assert "X-Object-Meta-A" not in answer.headers
    assert "Content-Encoding" not in answer.headers
    assert (answer.headers["X-Object-Meta-B"], answer.headers["Content-Type"]) == ("2", "a/b")
    assert client.call("POST", f"{container}/o", {"Content-Type": "c/d"}).status == 202
    assert client.call("HEAD", f"{container}/o").headers["Content-Type"] == "c/d"
    assert client.call("GET", container, query="format=json").json()[0]["content_type"] == "c/d"


def test_delete(client: Client, container: str) -> None:
    client.call("PUT", f"{container}/o", body=b"data")
    assert client.call("DELETE", f"{container}/o").status == 204
    assert client.call("GET", f"{container}/o").status == 404
    assert client.call("HEAD", f"{container}/o").status == 404
    assert client.call("DELETE", f"{container}/o").status == 404
    assert names(client, container) == []
    client.call("PUT", f"{container}/o", body=b"again")
    assert client.call("GET", f"{container}/o").body == b"again"


@pytest.mark.parametrize(
    ("header", "status", "body", "content_range"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-2", 206, b"89", "bytes 8-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=5-4", 200, b"0123456789", None),
        ("furlongs=1-2", 200, b"0123456789", None),
    ],
)
def test_ranges(
    client: Client, container: str, header: str, status: int, body: bytes, content_range: str | None
) -> None:
    client.call("PUT", f"{container}/o", body=b"0123456789")
    answer = client.call("GET", f"{container}/o", {"Range": header})
    assert (answer.status, answer.body, answer.headers.get("Content-Range")) == (status, body, content_range)


def test_several_ranges_come_as_multipart(client: Client, container: str) -> None:
    client.call("PUT", f"{container}/o", {"Content-Type": "text/x"}, b"0123456789")
    answer = client.call("GET", f"{container}/o", {"Range": "bytes=0-1,5-6,-1"})
    assert answer.status == 206
    kind, _, boundary = answer.headers["Content-Type"].partition(";boundary=")
    assert kind == "multipart/byteranges"
    parts = answer.body.split(f"--{boundary}".encode())
    assert parts[0] == b""
    assert parts[-1] == b"--"
    got = [part.strip(b"\r\n").split(b"\r\n\r\n") for part in parts[1:-1]]
    assert [data for _, data in got] == [b"01", b"56", b"9"]
    assert b"Content-Range: bytes 5-6/10" in got[1][0]
    assert b"Content-Type: text/x" in got[1][0]


def test_a_range_of_a_large_object(client: Client, container: str) -> None:
    data = b"".join(n.to_bytes(4, "big") for n in range(1_000_000))
    client.call("PUT", f"{container}/o", body=data)
    assert client.call("GET", f"{container}/o", {"Range": "bytes=2000001-3000001"}).body == data[2_000_001:3_000_002]


def test_conditional_requests(client: Client, container: str) -> None:
    created = client.call("PUT", f"{container}/o", body=b"data")
    date, tag = created.headers["Last-Modified"], created.headers["Etag"]
    old = "Sat, 29 Oct 1994 19:43:31 GMT"
    for headers, status in (
        ({"If-None-Match": tag}, 304),
        ({"If-None-Match": '"other"'}, 200),
        ({"If-Match": f'"{tag}"'}, 200),
        ({"If-Match": '"other"'}, 412),
        ({"If-Modified-Since": date}, 304),
        ({"If-Modified-Since": old}, 200),
        ({"If-Unmodified-Since": date}, 200),
        ({"If-Unmodified-Since": old}, 412),
        ({"Range": "bytes=0-1", "If-Range": f'"{tag}"'}, 206),
        ({"Range": "bytes=0-1", "If-Range": '"other"'}, 200),
        ({"Range": "bytes=-1", "If-Range": '"other"'}, 200),
    ):
        answer = client.call("GET", f"{container}/o", headers)
        assert answer.status == status, headers
        assert answer.body == {200: b"data", 206: b"da", 304: b""}.get(status, answer.body)
    assert client.call("PUT", f"{container}/o", {"If-None-Match": "*"}, b"x").status == 412
    assert client.call("PUT", f"{container}/p", {"If-None-Match": "*"}, b"x").status == 201
    assert client.call("GET", f"{container}/o", {"X-Newest": "true"}).body == b"data"


# Containers


def test_container_life(client: Client) -> None:
    assert client.call("PUT", "life", {"X-Container-Meta-Color": "red", "X-Container-Meta-Gone": "x"}).status == 201
    assert client.call("PUT", "life").status == 202
    head = client.call("HEAD", "life")
    assert head.status == 204
    assert head.headers["X-Container-Object-Count"] == "0"
    assert head.headers["X-Container-Bytes-Used"] == "0"
    assert head.headers["X-Container-Meta-Color"] == "red"
    assert head.headers["X-Storage-Policy"]
    assert (
        client.call("POST", "life", {"X-Container-Meta-Shape": "round", "X-Remove-Container-Meta-Gone": "x"}).status
        == 204
    )
    after = client.call("HEAD", "life").headers
    assert (after["X-Container-Meta-Color"], after["X-Container-Meta-Shape"]) == ("red", "round")
    assert "X-Container-Meta-Gone" not in after
    assert client.call("POST", "life", {"X-Container-Meta-Color": ""}).status == 204
    assert "X-Container-Meta-Color" not in client.call("HEAD", "life").headers
    assert client.call("DELETE", "life").status == 204
    for method in ("HEAD", "GET", "POST", "DELETE"):
        assert client.call(method, "life").status == 404
    assert client.call("PUT", "life").status == 201
    assert "X-Container-Meta-Shape" not in client.call("HEAD", "life").headers
    assert client.call("DELETE", "life").status == 204


def test_deleting_a_container_hides_it_from_every_worker(client: Client) -> None:
    """An object request right after the deletion must not be taken by a worker that remembers the container."""
    for attempt in range(10):
        name = f"short-lived-{attempt}"
        client.call("PUT", name)
        assert client.call("PUT", f"{name}/o", body=b"x").status == 201
        assert client.call("DELETE", f"{name}/o").status == 204
        assert client.call("DELETE", name).status == 204
        assert client.call("PUT", f"{name}/o", body=b"x").status == 404
        assert client.call("GET", f"{name}/o").status == 404


TREE = ["a", "a/1", "a/2", "a/b/1", "b", "c/1", "c/2", "d-1", "d-2", "z\u4e2d", "\u00e9"]


@pytest.fixture
def tree(client: Client, container: str) -> str:
    for name in TREE:
        assert client.call("PUT", f"{container}/{name}", body=name.encode()).status == 201
    return container


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", TREE),
        ("limit=3", ["a", "a/1", "a/2"]),
        ("limit=0", []),
        ("marker=a/2", TREE[3:]),
        ("marker=a/2&limit=2", ["a/b/1", "b"]),
        ("marker=a/1z&end_marker=c/2", ["a/2", "a/b/1", "b", "c/1"]),
        ("prefix=a", ["a", "a/1", "a/2", "a/b/1"]),
        ("prefix=a/", ["a/1", "a/2", "a/b/1"]),
        ("delimiter=/", ["a", "a/", "b", "c/", "d-1", "d-2", "z\u4e2d", "\u00e9"]),
        ("delimiter=/&prefix=a/", ["a/1", "a/2", "a/b/"]),
        ("delimiter=/&marker=a/", ["b", "c/", "d-1", "d-2", "z\u4e2d", "\u00e9"]),
        ("delimiter=/&limit=2", ["a", "a/"]),
        ("delimiter=-&prefix=d", ["d-"]),
        ("path=a", ["a/1", "a/2"]),
        ("path=", ["a", "b", "d-1", "d-2", "z\u4e2d", "\u00e9"]),
        ("reverse=true", TREE[::-1]),
        ("reverse=on&limit=2", ["\u00e9", "z\u4e2d"]),
        ("reverse=1&marker=c&end_marker=a/1", ["b", "a/b/1", "a/2"]),
        ("reverse=true&delimiter=/&prefix=a", ["a/", "a"]),
        ("prefix=" + quote("\u00e9"), ["\u00e9"]),
        ("prefix=nothing", []),
    ],
)
def test_listing_queries(client: Client, tree: str, query: str, expected: list[str]) -> None:
    assert names(client, tree, query) == expected
    plain = client.call("GET", tree, query=query)
    assert plain.status == (200 if expected else 204)
    assert plain.text.splitlines() == expected


def test_the_longest_markers_fit_on_every_hop(client: Client, container: str) -> None:
    """Unquoted slashes: a third of the size that they have between the services."""
    name = "/" * 1024
    assert client.call("PUT", f"{container}/{name}", body=b"x").status == 201
    query = f"prefix={name[:1000]}&marker={name[:1023]}&end_marker={name[:1023]}0"
    assert names(client, container, query) == [name]


def test_listing_formats(client: Client, tree: str) -> None:
    row = client.call("GET", tree, query="format=json&prefix=c/2").json()[0]
    assert set(row) == {"name", "hash", "bytes", "content_type", "last_modified"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}", row["last_modified"])
    answer = client.call("GET", tree, query="format=xml&delimiter=/")
    assert answer.headers["Content-Type"] == "application/xml; charset=utf-8"
    root = ElementTree.fromstring(answer.body)
    assert (root.tag, root.attrib["name"]) == ("container", tree)
    assert [(child.tag, child.findtext("name")) for child in root][:2] == [("object", "a"), ("subdir", "a/")]
    assert root.find("object/hash") is not None
    for accept, kind in (("application/json", "application/json"), ("text/xml", "text/xml"), ("*/*", "text/plain")):
        answer = client.call("GET", tree, {"Accept": accept})
        assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"
    assert (
        client.call("GET", tree, {"Accept": "text/xml"}, query="format=json")
        .headers["Content-Type"]
        .startswith("application/json")
    )


def test_names_with_every_kind_of_character_are_listed_in_byte_order(client: Client, container: str) -> None:
    odd = ["%", "%2F", "&<>\"'", "+", " ", "a\tb", "\u00e4", "\u4e2d", "\U0001f600", "\uffff"]
    for name in odd:
        assert client.call("PUT", f"{container}/{name}", body=b"").status == 201
    assert names(client, container) == sorted(odd, key=lambda name: name.encode())


# Accounts


def wait_for(check: Callable[[], bool], timeout_s: float = 15.0) -> None:
    import time

    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.1)


def test_account_totals_follow_its_containers(client: Client, container: str) -> None:
    client.call("PUT", f"{container}/o", body=b"x" * 1000)

    def row() -> dict[str, object]:
        listing = client.call("GET", query=f"format=json&prefix={container}").json()
        return dict(listing[0]) if listing else {}

    assert row()["name"] == container
    wait_for(lambda: (row()["count"], row()["bytes"]) == (1, 1000))
    head = client.call("HEAD")
    assert head.status == 204
    assert int(head.headers["X-Account-Container-Count"]) >= 1
    assert int(head.headers["X-Account-Bytes-Used"]) >= 1000


def test_account_metadata(client: Client) -> None:
    assert client.call("POST", headers={"X-Account-Meta-Team": "blue"}).status == 204
    assert client.call("HEAD").headers["X-Account-Meta-Team"] == "blue"
    assert client.call("POST", headers={"X-Remove-Account-Meta-Team": "x"}).status == 204
    assert "X-Account-Meta-Team" not in client.call("HEAD").headers


def test_account_listing_formats(client: Client, container: str) -> None:
    assert container in client.call("GET").text.splitlines()
    root = ElementTree.fromstring(client.call("GET", query="format=xml").body)
    assert (root.tag, root.attrib["name"]) == ("account", urlsplit(client.base).path.rpartition("/")[2])
    row = next(r for r in client.call("GET", query="format=json").json() if r["name"] == container)
    assert set(row) == {"name", "count", "bytes", "last_modified", "storage_policy"}
    assert client.call("GET", query="prefix=zzz-nothing").status == 204
    assert client.call("GET", query="prefix=zzz-nothing&format=json").json() == []


# Around the API


def test_info_names_the_limits_in_force(client: Client) -> None:
    info = json.loads(client.plain("GET", "/info").body)["swift"]
    assert info["max_file_size"] == 5_368_709_122
    assert info["container_listing_limit"] == 10_000
    assert any(policy.get("default") for policy in info["policies"])


def test_health_and_metrics(client: Client, cluster: Cluster) -> None:
    assert client.plain("GET", "/healthz").status == 200
    assert client.plain("GET", "/readyz").status == 200
    assert client.plain("GET", "/healthcheck").text == "OK"
    with urllib.request.urlopen(f"{cluster.management_url('proxy')}/metrics", timeout=30) as answer:
        assert b"swiftlet_http_requests_total" in answer.read()


@pytest.mark.parametrize("path", ["/metrics", "/statusz"])
@pytest.mark.parametrize("service", ["proxy", "metadata"])
def test_clients_do_not_see_how_the_store_is_run(cluster: Cluster, service: str, path: str) -> None:
    """These pages name servers, keys and rates: where clients come in, there is nothing."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(cluster.url(service) + path, timeout=30)
    refused.value.close()
    assert refused.value.code == 404
    with urllib.request.urlopen(cluster.management_url(service) + path, timeout=30) as answer:
        assert answer.status == 200
    with urllib.request.urlopen(cluster.management_url(service) + "/readyz", timeout=30) as answer:
        assert answer.status == 200


def test_options_names_the_methods(client: Client) -> None:
    answer = client.plain("OPTIONS", f"{client.base}/c/o")
    assert answer.status == 200
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "HEAD", "PUT", "POST", "DELETE", "COPY", "OPTIONS"}


def test_a_clients_request_id_does_not_replace_ours(client: Client) -> None:
    answer = client.call("HEAD", headers={"X-Trans-Id": "forged"})
    assert answer.headers["X-Trans-Id"] != "forged"


def test_keep_alive_survives_errors_without_a_body(client: Client) -> None:
    """Two requests on one connection: the first is refused, the second is answered."""
    first = raw("GET", f"{client.base}/missing", {"X-Auth-Token": client.token}).replace(b"Connection: close", b"A: b")
    second = raw("HEAD", client.base, {"X-Auth-Token": client.token})
    parts = urlsplit(client.endpoint)
    import socket

    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=30) as connection:
        connection.sendall(first + second)
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
    assert received.startswith(b"HTTP/1.1 404")
    assert b"HTTP/1.1 204" in received
