"""Versions and links with python-swiftclient, through all services and over either kind of store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from swiftclient.client import Connection
from swiftclient.exceptions import ClientException

from e2e.standalone.cluster import Cluster, start_cluster

LARGE = 3 << 20
"""Bytes that are streamed, and stored in a file of their own."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A store whose account is empty at first."""
    running = start_cluster(tmp_path_factory.mktemp("versions"))
    yield running
    assert running.stop() == 0


@pytest.fixture
def swift(cluster: Cluster) -> Iterator[Connection]:
    connection = Connection(authurl=cluster.auth_url, user=cluster.user, key=cluster.key, retries=0)
    yield connection
    connection.close()


def put(swift: Connection, name: str, body: bytes = b"", **headers: str) -> dict[str, Any]:
    """An object; the answer's headers."""
    answer: dict[str, Any] = {}
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    swift.put_object("c", name, body, headers=given, response_dict=answer)
    return dict(answer["headers"])


def listed(swift: Connection, **more: Any) -> list[dict[str, Any]]:
    return list(swift.get_container("c", **more)[1])


def test_versions_and_links(swift: Connection) -> None:
    swift.put_container("c", headers={"X-Versions-Enabled": "true"})
    assert swift.head_container("c")["x-versions-enabled"] == "True"
    bodies = [b"one", b"2" * LARGE, b"", "drei \u00e9".encode()]
    ids = [put(swift, "o", body)["x-object-version-id"] for body in bodies]
    assert swift.get_object("c", "o")[1] == bodies[-1]
    for version, body in zip(ids, bodies, strict=True):
        headers, got = swift.get_object("c", "o", query_string=f"version-id={version}")
        assert (headers["x-object-version-id"], got == body) == (version, True)

    lines = listed(swift, query_string="versions")
    assert [(line["version_id"], line["is_latest"]) for line in lines] == [
        (version, version == ids[-1]) for version in reversed(ids)
    ]
    page = listed(swift, query_string="versions", limit=2)
    rest = listed(swift, query_string="versions", marker="o", version_marker=page[-1]["version_id"])
    assert page + rest == lines
    assert listed(swift)[0]["bytes"] == len(bodies[-1])
    assert int(swift.head_container("c")["x-container-bytes-used"]) == sum(map(len, bodies))
    assert [row["name"] for row in swift.get_account()[1]] == ["c"]

    swift.delete_object("c", "o")
    with pytest.raises(ClientException) as caught:
        swift.get_object("c", "o")
    assert caught.value.http_status == 404
    swift.put_object("c", "o", b"", query_string=f"version-id={ids[1]}")
    assert swift.get_object("c", "o")[1] == bodies[1]

    put(swift, "link", X_Symlink_Target="c/o")
    headers, got = swift.get_object("c", "link")
    assert (got == bodies[1], "version-id=" in headers["content-location"]) == (True, True)
    assert swift.head_object("c", "link", query_string="symlink=get")["content-length"] == "0"

    with pytest.raises(ClientException) as caught:
        swift.delete_container("c")
    assert caught.value.http_status == 409
    swift.post_container("c", {"X-Versions-Enabled": "false"})
    swift.delete_object("c", "link")
    for line in listed(swift, query_string="versions"):
        swift.delete_object("c", line["name"], query_string=f"version-id={line['version_id']}")
    assert listed(swift, query_string="versions") == []
    swift.delete_container("c")
    assert swift.get_account()[1] == []


def test_an_archive(swift: Connection) -> None:
    swift.put_container("old")
    swift.put_container("c", headers={"X-Versions-Location": "old"})
    for body in (b"1", b"2" * LARGE, b"3"):
        put(swift, "o", body)
    assert [row["bytes"] for row in swift.get_container("old", prefix="001o/")[1]] == [1, LARGE]
    swift.delete_object("c", "o")
    assert swift.get_object("c", "o")[1] == b"2" * LARGE
    swift.delete_object("c", "o")
    assert swift.get_object("c", "o")[1] == b"1"


def test_capabilities(swift: Connection) -> None:
    told = swift.get_capabilities()
    assert told["symlink"] == {"symloop_max": 2, "static_links": True}
    assert told["object_versioning"] == {}
    assert json.dumps(told["versioned_writes"]["allowed_flags"]) == '["x-versions-location", "x-history-location"]'
