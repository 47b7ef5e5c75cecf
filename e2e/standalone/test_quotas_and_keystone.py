"""Quotas and Keystone's logins with python-swiftclient, against a store whose API has two processes.

The quota file and the users are changed while the store runs, as an operator changes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import requests
import yaml
from swiftclient.client import Connection
from swiftclient.exceptions import ClientException

from e2e.standalone.cluster import Cluster, start_cluster
from swiftlet.auth.users import hash_secret

# python-swiftclient calls python-keystoneclient in ways that this one would like to be rid of.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ROOT, ROOT_KEY = "admin:root", "the root key"
CHANGES_WITHIN_S = 30.0
WRITERS = 50


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = start_cluster(tmp_path_factory.mktemp("quotas"), "--workers", "2")
    file = next(Path(word) for word in running.services["proxy"]["command"] if word.endswith(".yaml"))
    settings = yaml.safe_load(file.read_text())
    settings["quota"] = {"file": str(quota_file(running)), "check_interval_s": 0.5}
    settings["auth"]["revocations_check_interval_s"] = 0.5
    settings["auth"]["users_check_interval_s"] = 0.5
    settings["proxy"]["container_info_ttl_s"] = 0.5
    write(quota_file(running), {"levels": {"default": {}}})
    users = yaml.safe_load(users_file(running).read_text())
    root = {"account": "admin", "user": "root", "roles": ["reseller_admin"], "secret_hash": hash_secret(ROOT_KEY)}
    write(users_file(running), [*users, root])
    running.kill("proxy")
    file.write_text(yaml.safe_dump(settings))
    running.start("proxy")
    yield running
    assert running.stop() == 0


def quota_file(cluster: Cluster) -> Path:
    return users_file(cluster).with_name("quotas.yaml")


def users_file(cluster: Cluster) -> Path:
    return next(cluster.data.rglob("users.yaml"))


def write(path: Path, document: object) -> None:
    """As Kubernetes does: a new file takes the old one's place."""
    aside = path.with_suffix(".new")
    aside.write_text(yaml.safe_dump(document))
    aside.rename(path)


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + CHANGES_WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {CHANGES_WITHIN_S:g} s for {what}"
        time.sleep(0.2)


def v1(cluster: Cluster, user: str | None = None, key: str | None = None) -> Connection:
    return Connection(authurl=cluster.auth_url, user=user or cluster.user, key=key or cluster.key, retries=0)


def by_version(cluster: Cluster, version: str, key: str | None = None) -> Connection:
    tenant, _, name = cluster.user.partition(":")
    scope = {"user_domain_name": "Default", "project_domain_name": "Default", "project_name": tenant}
    return Connection(
        authurl=f"{cluster.endpoint}/v{version}",
        user=name,
        key=key or cluster.key,
        tenant_name=tenant,
        auth_version=version[0],
        os_options=scope if version == "3" else {},
        retries=0,
    )


def status(work: Callable[[], object]) -> int:
    """The HTTP status of what python-swiftclient does; 0 where none is told."""
    try:
        work()
    except ClientException as error:
        return int(error.http_status or 0)
    return 200


def test_fifty_writers_and_a_precise_quota(cluster: Cluster) -> None:
    root, mine = v1(cluster, ROOT, ROOT_KEY), v1(cluster)
    write(
        quota_file(cluster),
        {"precise": True, "levels": {"default": {}, "L1": {"object_count": 20, "account_usage_bytes": 50_000}}},
    )
    mine.put_container("quota")
    url = mine.get_auth()[0]
    token = root.get_auth()[1]
    as_root = Connection(preauthurl=url, preauthtoken=token, retries=0)
    assert status(lambda: mine.post_account({"X-Account-Meta-Quota": "L1"})) == 403
    eventually(lambda: status(lambda: as_root.post_account({"X-Account-Meta-Quota": "L1"})) == 200, "the level L1")
    assert status(lambda: as_root.post_account({"X-Account-Meta-Quota": "L9"})) == 400

    own_token = mine.get_auth()[1]
    connections = [Connection(preauthurl=url, preauthtoken=own_token, retries=0) for _ in range(WRITERS)]

    def in_force() -> bool:
        """Whether each process has seen the file and the level: what is too large is refused on every connection."""
        return all(status(partial(one.put_object, "quota", "large", bytes(60_000))) == 413 for one in connections)

    eventually(in_force, "the limits in both processes")
    # What was let in before both knew of the limits fills the account until its totals are told, after the DELETE.
    assert status(lambda: mine.delete_object("quota", "large")) in {200, 404}
    eventually(lambda: status(lambda: mine.put_object("quota", "room", b"x" * 1000)) == 200, "room in the account")
    mine.delete_object("quota", "room")

    def put(number: int) -> int:
        return status(lambda: connections[number].put_object("quota", f"o-{number}", b"x" * 1000))

    with ThreadPoolExecutor(WRITERS) as pool:
        answers = list(pool.map(put, range(WRITERS)))
    assert set(answers) <= {200, 413}
    headers, rows = mine.get_container("quota")
    assert len(rows) == int(headers["x-container-object-count"]) <= 20

    def listed() -> int:
        count = int(mine.head_container("quota")["x-container-object-count"])
        assert count <= 20
        return count

    def full() -> bool:
        """Whether all the room is taken: those who compete for the last of it may be refused, and try again."""
        while (more := status(lambda: mine.put_object("quota", f"more-{time.monotonic_ns()}", b""))) == 200:
            listed()
        return more == 413 and listed() == 20

    eventually(full, "20 objects and no more")
    with pytest.raises(ClientException) as refused:
        mine.put_object("quota", "one-more", b"x")
    assert "object_count of level L1" in str(refused.value.http_response_content)
    # Somebody who makes room has room.
    mine.delete_object("quota", mine.get_container("quota")[1][0]["name"])
    eventually(lambda: status(lambda: mine.put_object("quota", "one-more", b"x")) == 200, "room again")
    for connection in connections:
        connection.close()
    write(quota_file(cluster), {"levels": {"default": {}}})
    as_root.post_account({"X-Account-Meta-Quota": ""})

    def removed() -> bool:
        """Whether the container is gone; a row that is late at a replica of it is met at the next try."""
        for row in mine.get_container("quota", full_listing=True)[1]:
            assert status(partial(mine.delete_object, "quota", row["name"])) in {200, 404}
        return status(lambda: mine.delete_container("quota")) == 200

    eventually(removed, "the container to be empty")


@pytest.mark.parametrize("version", ["2.0", "3"])
def test_logins_by_keystone(cluster: Cluster, version: str) -> None:
    connection = by_version(cluster, version)
    url, token = connection.get_auth()
    assert url == f"{cluster.endpoint}/v1/AUTH_{cluster.user.partition(':')[0]}"
    connection.put_container("keystone")
    connection.put_object("keystone", "o", b"by keystone")
    # The same container by v1, side by side.
    assert v1(cluster).get_object("keystone", "o")[1] == b"by keystone"
    connection.delete_object("keystone", "o")
    connection.delete_container("keystone")
    with pytest.raises(ClientException, match="Unauthorized"):
        by_version(cluster, version, "wrong").get_auth()
    assert token not in cluster.log("proxy")
    assert "a login was refused" in cluster.log("proxy")
    assert cluster.key not in cluster.log("proxy")


def test_a_revoked_token_and_a_changed_user(cluster: Cluster) -> None:
    connection = by_version(cluster, "3")
    url, token = connection.get_auth()
    headers = {"X-Auth-Token": token, "X-Subject-Token": token}
    assert requests.get(url, headers=headers, timeout=10).ok
    assert requests.delete(f"{cluster.endpoint}/v3/auth/tokens", headers=headers, timeout=10).status_code == 204

    def refused(token: str) -> bool:
        # Both processes: each connection meets either.
        answers = [requests.get(url, headers={"X-Auth-Token": token}, timeout=10).status_code for _ in range(20)]
        return set(answers) == {401}

    eventually(lambda: refused(token), "both processes to know the revoked token")
    other = v1(cluster, ROOT, ROOT_KEY).get_auth()[1]
    users = yaml.safe_load(users_file(cluster).read_text())
    write(users_file(cluster), [user for user in users if user["account"] != "admin"])
    eventually(lambda: refused(other), "the removed user's token to be refused")
    assert requests.get(url, headers={"X-Auth-Token": by_version(cluster, "3").get_auth()[1]}, timeout=10).ok
