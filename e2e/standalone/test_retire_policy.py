"""A storage policy is retired as the guide says: deprecated, its container copied and deleted, by real services."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from e2e.standalone.cluster import SOURCES, Cluster, environment, start_cluster
from swiftlet.web.tests.conftest import eventually

GOLD = {"index": 0, "name": "gold", "default": True}
SILVER = {"index": 1, "name": "silver"}


class Store:
    """A store whose policies are in a file, as in Kubernetes."""

    def __init__(self, root: Path) -> None:
        self.file = root / "policies.yaml"
        self.write([GOLD, SILVER])
        settings = {
            "SWIFTLET_CLUSTER__RING_CHECK_INTERVAL_S": "0.2",
            "SWIFTLET_CONTAINER__USAGE_INTERVAL_S": "0.3",
            "SWIFTLET_CONTAINER__DEPRECATED_POLICY_GRACE_S": "0.5",
            "SWIFTLET_REPLICATOR__INTERVAL_S": "1",
        }
        self.settings = settings
        self.cluster: Cluster = start_cluster(root / "store", "--policies", "gold,silver", settings=settings)
        for service in self.cluster.services:
            self._take_policies_from_the_file(service)
        self.cluster.kill(*self.cluster.services, number=signal.SIGTERM)
        self.cluster.start(*self.cluster.services)
        login = {"X-Auth-User": self.cluster.user, "X-Auth-Key": self.cluster.key}
        answer = requests.get(self.cluster.auth_url, headers=login, timeout=30)
        self.url, self.token = answer.headers["X-Storage-Url"], {"X-Auth-Token": answer.headers["X-Auth-Token"]}

    def _take_policies_from_the_file(self, service: str) -> None:
        config = self.cluster.settings_file(service)
        settings = yaml.safe_load(config.read_text())
        settings.pop("policies", None)
        settings["cluster"]["policies_file"] = str(self.file)
        config.write_text(yaml.safe_dump(settings))

    def write(self, policies: list[dict[str, Any]]) -> None:
        self.file.with_suffix(".new").write_text(yaml.safe_dump(policies))
        self.file.with_suffix(".new").replace(self.file)

    def call(self, method: str, path: str, data: bytes = b"", **headers: str) -> requests.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return requests.request(
            method, f"{self.url}/{path}", headers={**self.token, **named}, data=data or None, timeout=30
        )

    def reports(self, kind: str) -> list[dict[str, Any]]:
        found = []
        for name in self.cluster.services:
            if name.startswith(kind):
                with urllib.request.urlopen(f"{self.cluster.url(name)}/statusz", timeout=30) as answer:
                    found.append(json.load(answer))
        return found

    def used(self) -> list[dict[str, Any]]:
        """Return what the container servers report about the policy silver."""
        reports = [one["policies"] for one in self.reports("container-")]
        return [one["used"]["1"] for one in reports if one and "1" in one["used"]]

    def listed(self) -> list[dict[str, Any]]:
        """Return the output of `swiftlet policy usage silver`."""
        config = str(self.cluster.settings_file("proxy"))
        run = subprocess.run(
            [sys.executable, "-m", "swiftlet.main", "policy", "usage", "silver", "--config", config, "--json"],
            env={**environment(), **self.settings, "PYTHONPATH": os.pathsep.join([str(SOURCES)])},
            capture_output=True,
            check=True,
            timeout=120,
        )
        found = json.loads(run.stdout)
        assert found["whole"]
        return list(found["containers"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = Store(tmp_path_factory.mktemp("retiring"))
    yield made
    made.cluster.stop()


def test_a_policy_is_deprecated_and_its_container_copied_and_deleted(store: Store) -> None:
    assert store.call("PUT", "photos", X_Storage_Policy="silver").status_code == 201
    for number in range(3):
        body = b"x" * number
        assert store.call("PUT", f"photos/{number}", body, X_Object_Meta_Number=str(number)).status_code == 201
    store.write([GOLD, {**SILVER, "deprecated": True}])

    def is_refused() -> bool:
        return store.call("PUT", "new", X_Storage_Policy="silver").status_code == 400

    # Each worker of the proxy reads the file by itself, and which of them answers is chance.
    eventually(lambda: all(is_refused() for _ in range(24)), 60)
    refused = store.call("PUT", "new2", X_Storage_Policy="Silver")
    assert refused.text == "Storage Policy 'silver' is deprecated"
    with urllib.request.urlopen(f"{store.cluster.endpoint}/info", timeout=30) as answer:
        assert [one["name"] for one in json.load(answer)["swift"]["policies"]] == ["gold"]
    assert store.call("PUT", "photos/3", b"xxx").status_code == 201
    # One that came before the proxy had heard.
    assert store.call("DELETE", "new").status_code in (204, 404)
    eventually(lambda: sum(one["objects"] for one in store.used()) == 4, 60)
    eventually(lambda: sum(one["containers"] for one in store.used()) == 1, 60)
    (listed,) = [one for one in store.listed() if one["container"] == "photos"]
    assert listed["objects"] == 4

    assert store.call("PUT", "photos-2", X_Storage_Policy="gold").status_code == 201
    for name in store.call("GET", "photos").text.split():
        assert store.call("COPY", f"photos/{name}", Destination=f"photos-2/{name}").status_code == 201
        assert store.call("DELETE", f"photos/{name}").status_code == 204
    eventually(lambda: store.call("DELETE", "photos").status_code in (204, 404), 60)
    copied = store.call("GET", "photos-2/2")
    assert (copied.content, copied.headers["X-Object-Meta-Number"]) == (b"xx", "2")

    eventually(lambda: sum(one["containers"] for one in store.used()) == 0, 60)
    assert not [one for one in store.listed() if one["container"] == "photos"]
    assert any(one["copies"] for one in store.used()), "the deletion is remembered"
    assert all(one["emptySince"] is None for one in store.used() if one["copies"])


def test_proxies_say_which_users_all_their_workers_know(store: Store) -> None:
    with urllib.request.urlopen(f"{store.cluster.management_url('proxy')}/statusz", timeout=30) as answer:
        report = json.load(answer)
    assert report["usersOfWorkers"] == [report["users"]]
