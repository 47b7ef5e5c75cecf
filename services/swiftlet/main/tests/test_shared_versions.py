"""What the workers of a service use, as any of them tells it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from swiftlet.auth.users import hash_secret
from swiftlet.errors import SettingsError
from swiftlet.main.shared_versions import SharedVersions
from swiftlet.main.users import use_users
from swiftlet.settings import AuthSection
from swiftlet.web.app import create_base_app
from swiftlet.web.statusz import STATUS


def test_who_has_not_said_anything_is_told_as_unknown() -> None:
    versions = SharedVersions(3)
    assert versions.all() == [None]
    versions.tell(1, "0123abcd")
    assert versions.all() == [None, "0123abcd"]
    versions.tell(0, "0123abcd")
    versions.tell(2, "ffff0000")
    assert versions.all() == ["0123abcd", "ffff0000"]
    versions.tell(2, "0123abcd")
    assert versions.all() == ["0123abcd"]


def test_processes_share_what_they_say() -> None:
    versions = SharedVersions(2)
    versions.tell(0, "aaaa")
    child = os.fork()
    if not child:
        versions.tell(1, "bbbb")
        os._exit(0)
    os.waitpid(child, 0)
    assert versions.all() == ["aaaa", "bbbb"]


async def test_a_proxy_reports_the_files_of_all_its_workers(tmp_path: Path) -> None:
    file = tmp_path / "users.yaml"
    entry = {"account": "test", "user": "tester", "roles": ["admin"], "secret_hash": hash_secret("secret")}
    file.write_text(yaml.safe_dump([entry]))
    versions = SharedVersions(2)
    app = create_base_app("proxy", trust_request_ids=False, managed_apart=True)
    users = use_users(app, AuthSection(users_file=file, users_check_interval_s=0.01), versions)
    before = users.version
    assert report(app) == {"users": before, "usersOfWorkers": [before, None]}
    versions.tell(1, before)
    assert report(app) == {"users": before, "usersOfWorkers": [before]}
    file.write_text(yaml.safe_dump([{**entry, "roles": ["user"]}]))
    assert users.reload()
    assert report(app) == {"users": users.version, "usersOfWorkers": [users.version, before]}
    file.write_text("no users")
    with pytest.raises(SettingsError):
        users.reload()
    assert users.version != before


def report(app: web.Application) -> dict[str, object]:
    fields = json.loads(app[STATUS].report())
    return {name: value for name, value in fields.items() if name.startswith("users")}
