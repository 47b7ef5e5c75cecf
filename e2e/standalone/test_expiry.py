"""Objects that go by themselves, with python-swiftclient, on a store whose expirer is killed in between."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from swiftclient.client import Connection
from swiftclient.exceptions import ClientException
from swiftclient.service import SwiftService, SwiftUploadObject

from e2e.standalone.cluster import Cluster
from e2e.standalone.conftest import Stores

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def cluster(stores: Stores) -> Cluster:
    """A store whose expirer does not wait."""
    return stores.whole()


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[Connection]:
    made = Connection(cluster.auth_url, cluster.user, cluster.key, retries=0)
    yield made
    made.close()


@pytest.fixture
def container(connection: Connection) -> str:
    name = f"expiry-{uuid.uuid4().hex[:12]}"
    connection.put_container(name)
    return name


def listed(connection: Connection, container: str) -> list[str]:
    return [row["name"] for row in connection.get_container(container)[1]]


def totals(connection: Connection, container: str) -> tuple[str, str]:
    """How many objects and bytes a container says that it has."""
    found = connection.head_container(container)
    return found["x-container-object-count"], found["x-container-bytes-used"]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.1)


def seen(connection: Connection, container: str, name: str) -> bool:
    try:
        connection.head_object(container, name)
    except ClientException as error:
        if error.http_status != 404:
            raise
        return False
    return True


def test_what_is_due_goes_and_the_rest_stays(cluster: Cluster, connection: Connection, container: str) -> None:
    connection.put_object(container, "due", b"x", headers={"X-Delete-After": "600"})
    assert "x-delete-at" in connection.head_object(container, "due")
    connection.delete_object(container, "due")
    for number in range(20):
        connection.put_object(container, f"due{number}", b"x", headers={"X-Delete-After": "4"})
    connection.put_object(container, "overwritten", b"x", headers={"X-Delete-After": "4"})
    connection.put_object(container, "overwritten", b"y")
    connection.put_object(container, "longer", b"x", headers={"X-Delete-After": "4"})
    connection.post_object(container, "longer", {"X-Delete-After": "3600"})
    connection.put_object(container, "posted", b"x")
    connection.post_object(container, "posted", {"X-Delete-At": str(int(time.time()) + 4)})
    wait_until(lambda: not seen(connection, container, "due0"), "gone at its time")
    cluster.kill("replicator")
    cluster.start("replicator")
    wait_until(lambda: sorted(listed(connection, container)) == ["longer", "overwritten"], "rows gone")
    assert connection.get_object(container, "overwritten")[1] == b"y"
    assert connection.get_object(container, "longer")[1] == b"x"
    # Another replica than the one that listed may answer, and it hears of deletions a moment later.
    wait_until(lambda: totals(connection, container) == ("2", "2"), "totals of what is left")


def test_uploads_of_the_swift_command(cluster: Cluster, connection: Connection, container: str, tmp_path: Path) -> None:
    file = tmp_path / "large.bin"
    file.write_bytes(bytes(3_000_000))
    options = {"auth": cluster.auth_url, "user": cluster.user, "key": cluster.key, "auth_version": "1", "retries": 0}
    with SwiftService(options=options) as swift:
        upload = {
            "header": ["X-Delete-After: 5"],
            "segment_size": 1_000_000,
            "use_slo": True,
            "segment_container": container,
        }
        results = list(swift.upload(container, [SwiftUploadObject(str(file), object_name="slo")], upload))
    assert all(result["success"] for result in results), results
    assert len(connection.get_object(container, "slo")[1]) == 3_000_000
    wait_until(lambda: "slo" not in listed(connection, container), "the manifest gone")
    assert len(listed(connection, container)) == 3, "its segments, for which nothing was asked"


@pytest.mark.parametrize("header", ["X-Delete-At", "X-Delete-After"])
def test_bad_times(connection: Connection, container: str, header: str) -> None:
    for value in ("-1", "soon", "0"):
        with pytest.raises(ClientException) as refused:
            connection.put_object(container, "o", b"x", headers={header: value})
        assert refused.value.http_status == 400
    assert listed(connection, container) == []
