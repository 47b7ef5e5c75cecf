"""The `openstack` command of python-openstackclient: accounts, containers and objects, with a login by Keystone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.clients.conftest import random_file
from e2e.clients.suites import HOME
from e2e.standalone.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OpenStack = Callable[..., Any]


@pytest.fixture
def openstack(cluster: Cluster, tmp_path: Path) -> OpenStack:
    """Runs the command; what it prints, read as JSON where it can print that."""
    account, _, user = cluster.user.partition(":")
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "OS_AUTH_URL": f"{cluster.endpoint}/v3",
        "OS_USERNAME": user,
        "OS_PASSWORD": cluster.key,
        "OS_PROJECT_NAME": account,
        "OS_USER_DOMAIN_NAME": "Default",
        "OS_PROJECT_DOMAIN_NAME": "Default",
        "OS_IDENTITY_API_VERSION": "3",
    }

    def run(*arguments: str | Path, json_output: bool = True) -> Any:
        command = [str(HOME / "venv" / "bin" / "openstack"), *map(str, arguments)]
        command += ["--format", "json"] if json_output else []
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command} gave {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if json_output else done.stdout

    return run


def test_containers_objects_and_the_account(openstack: OpenStack, tmp_path: Path) -> None:
    file = tmp_path / "für alle.bin"
    random_file(file, 3 << 20, 8)

    assert openstack("token", "issue")["id"]
    assert any(one["Type"] == "object-store" for one in openstack("catalog", "list"))

    assert [one["container"] for one in openstack("container", "create", "cli", "cli-2")] == ["cli", "cli-2"]
    assert {"cli", "cli-2"} <= {one["Name"] for one in openstack("container", "list")}
    openstack("container", "set", "--property", "Color=red", "cli", json_output=False)
    assert openstack("container", "show", "cli")["properties"] == {"Color": "red"}
    openstack("container", "unset", "--property", "Color", "cli", json_output=False)
    assert not openstack("container", "show", "cli").get("properties")

    created = openstack("object", "create", "cli", file.name, "--name", "ö/1")
    assert created[0]["object"] == "ö/1"
    openstack("object", "set", "--property", "Taste=sweet", "cli", "ö/1", json_output=False)
    shown = openstack("object", "show", "cli", "ö/1")
    assert shown["properties"] == {"Taste": "sweet"}
    assert int(shown["content-length"]) == 3 << 20
    openstack("object", "unset", "--property", "Taste", "cli", "ö/1", json_output=False)
    assert not openstack("object", "show", "cli", "ö/1").get("properties")
    assert openstack("object", "list", "cli", "--prefix", "ö/") == [{"Name": "ö/1"}]

    openstack("object", "save", "cli", "ö/1", "--file", "back", json_output=False)
    assert (tmp_path / "back").read_bytes() == file.read_bytes()
    openstack("object", "delete", "cli", "ö/1", json_output=False)
    assert openstack("object", "list", "cli") == []

    openstack("object", "store", "account", "set", "--property", "Owner=me", json_output=False)
    account = openstack("object", "store", "account", "show")
    assert account["properties"]["Owner"] == "me"
    assert int(account["Containers"]) >= 2
    openstack("object", "store", "account", "unset", "--property", "Owner", json_output=False)
    openstack("object", "create", "cli-2", file.name, json_output=False)
    openstack("container", "delete", "--recursive", "cli-2", json_output=False)
    openstack("container", "delete", "cli", json_output=False)
    assert not {"cli", "cli-2"} & {one["Name"] for one in openstack("container", "list")}
