"""Versions and links with python-swiftclient, through all services."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from swiftclient.client import Connection
from swiftclient.exceptions import ClientException

from e2e.standalone.cluster import Cluster

CONTAINER, ARCHIVE = "versioned-c", "versioned-old"
LARGE = 3 << 20
"""Bytes that are streamed, and stored in a file of their own."""


@pytest.fixture
def swift(cluster: Cluster) -> Iterator[Connection]:
    connection = Connection(authurl=cluster.auth_url, user=cluster.user, key=cluster.key, retries=0)
    yield connection
    connection.close()


def put(swift: Connection, name: str, body: bytes = b"", **headers: str) -> dict[str, Any]:
    """An object; the answer's headers."""
    answer: dict[str, Any] = {}
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    swift.put_object(CONTAINER, name, body, headers=given, response_dict=answer)
    return dict(answer["headers"])


def listed(swift: Connection, **more: Any) -> list[dict[str, Any]]:
    return list(swift.get_container(CONTAINER, **more)[1])


def containers(swift: Connection) -> set[str]:
    """Those of these tests that the account lists, also one with old versions if it were listed."""
    return {row["name"] for row in swift.get_account(full_listing=True)[1] if CONTAINER in row["name"]}


def test_versions_and_links(swift: Connection) -> None:
    swift.put_container(CONTAINER, headers={"X-Versions-Enabled": "true"})
    assert swift.head_container(CONTAINER)["x-versions-enabled"] == "True"
    bodies = [b"one", b"2" * LARGE, b"", "drei \u00e9".encode()]
    ids = [put(swift, "o", body)["x-object-version-id"] for body in bodies]
    assert swift.get_object(CONTAINER, "o")[1] == bodies[-1]
    for version, body in zip(ids, bodies, strict=True):
        headers, got = swift.get_object(CONTAINER, "o", query_string=f"version-id={version}")
        assert (headers["x-object-version-id"], got == body) == (version, True)

    lines = listed(swift, query_string="versions")
    assert [(line["version_id"], line["is_latest"]) for line in lines] == [
        (version, version == ids[-1]) for version in reversed(ids)
    ]
    page = listed(swift, query_string="versions", limit=2)
    rest = listed(swift, query_string="versions", marker="o", version_marker=page[-1]["version_id"])
    assert page + rest == lines
    assert listed(swift)[0]["bytes"] == len(bodies[-1])
    assert int(swift.head_container(CONTAINER)["x-container-bytes-used"]) == sum(map(len, bodies))
    assert containers(swift) == {CONTAINER}

    swift.delete_object(CONTAINER, "o")
    with pytest.raises(ClientException) as caught:
        swift.get_object(CONTAINER, "o")
    assert caught.value.http_status == 404
    swift.put_object(CONTAINER, "o", b"", query_string=f"version-id={ids[1]}")
    assert swift.get_object(CONTAINER, "o")[1] == bodies[1]

    put(swift, "link", X_Symlink_Target=f"{CONTAINER}/o")
    headers, got = swift.get_object(CONTAINER, "link")
    assert (got == bodies[1], "version-id=" in headers["content-location"]) == (True, True)
    assert swift.head_object(CONTAINER, "link", query_string="symlink=get")["content-length"] == "0"

    with pytest.raises(ClientException) as caught:
        swift.delete_container(CONTAINER)
    assert caught.value.http_status == 409
    swift.post_container(CONTAINER, {"X-Versions-Enabled": "false"})
    swift.delete_object(CONTAINER, "link")
    for line in listed(swift, query_string="versions"):
        swift.delete_object(CONTAINER, line["name"], query_string=f"version-id={line['version_id']}")
    assert listed(swift, query_string="versions") == []
    swift.delete_container(CONTAINER)
    assert containers(swift) == set()


def test_an_archive(swift: Connection) -> None:
    swift.put_container(ARCHIVE)
    swift.put_container(CONTAINER, headers={"X-Versions-Location": ARCHIVE})
    for body in (b"1", b"2" * LARGE, b"3"):
        put(swift, "o", body)
    assert [row["bytes"] for row in swift.get_container(ARCHIVE, prefix="001o/")[1]] == [1, LARGE]
    swift.delete_object(CONTAINER, "o")
    assert swift.get_object(CONTAINER, "o")[1] == b"2" * LARGE
    swift.delete_object(CONTAINER, "o")
    assert swift.get_object(CONTAINER, "o")[1] == b"1"


def test_capabilities(swift: Connection) -> None:
    told = swift.get_capabilities()
    assert told["symlink"] == {"symloop_max": 2, "static_links": True}
    assert told["object_versioning"] == {}
    assert json.dumps(told["versioned_writes"]["allowed_flags"]) == '["x-versions-location", "x-history-location"]'
