"""The cluster's keys while a service runs: a new one takes the place of an old one without a restart or a refusal."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from swiftlet.auth.identity import Identity, Role
from swiftlet.auth.tokens import Tokens, derive_key
from swiftlet.errors import SettingsError, Unauthorized
from swiftlet.main.keys import FAILURES, KEYS, TOKENS, ClusterKeys, use_keys, use_tokens
from swiftlet.main.reloading import Reloading
from swiftlet.settings import ClusterSection
from swiftlet.settings.secret import key_id
from swiftlet.transport.signing import ClusterKey
from swiftlet.web.app import create_base_app
from swiftlet.web.tests.conftest import eventually

OLD, NEW = b"the old key of enough bytes", b"the new key of enough bytes"
ALICE = Identity("AUTH_a", "alice", frozenset({Role.USER}))


def put(path: Path, *keys: bytes) -> None:
    """Write keys as Kubernetes does: aside, then in one step."""
    path.with_name("aside").write_bytes(b"\n".join(keys) + b"\n")
    os.replace(path.with_name("aside"), path)


def section(tmp_path: Path, *keys: bytes) -> ClusterSection:
    """A cluster whose keys are in a file."""
    put(tmp_path / "key", *keys)
    return ClusterSection.model_validate(
        {"hash_path_suffix": "x", "key_file": tmp_path / "key", "key_check_interval_s": 0.01}
    )


async def test_a_key_is_changed_without_a_restart_and_tokens_follow(tmp_path: Path) -> None:
    cluster = section(tmp_path, OLD)
    app = create_base_app("object", trust_request_ids=True)
    tokens, keys = use_tokens(app, cluster, 60), use_keys(app, cluster)
    old_token, _ = tokens.issue(ALICE)
    only_old, only_new = ClusterKey(OLD), ClusterKey(NEW)

    async with TestClient(TestServer(app)) as client:

        async def reported() -> list[str]:
            ids: list[str] = json.loads(await (await client.get("/statusz")).read())["keys"]
            return ids

        assert await reported() == [key_id(OLD)]
        for step in ((OLD, NEW), (NEW, OLD)):
            put(tmp_path / "key", *step)
            await asyncio.to_thread(eventually, lambda: tuple(app[KEYS].ids()) == tuple(map(key_id, step)))  # noqa: B023
            assert await reported() == [key_id(key) for key in step]
            for other in (only_old, only_new):
                keys.signing.check(other.sign("GET", "h:1", "/"), "GET", "h:1", "/")
            assert tokens.check(old_token) == ALICE
            ClusterKey(step[0]).check(keys.signing.sign("GET", "h:1", "/"), "GET", "h:1", "/")
            assert Tokens([derive_key(step[0], TOKENS)]).check(tokens.issue(ALICE)[0]) == ALICE

        put(tmp_path / "key", NEW)
        await asyncio.to_thread(eventually, lambda: app[KEYS].ids() == [key_id(NEW)])
        await reported()
        with pytest.raises(Unauthorized):
            keys.signing.check(only_old.sign("GET", "h:1", "/"), "GET", "h:1", "/")
        with pytest.raises(Unauthorized):
            tokens.check(old_token)


@pytest.mark.parametrize("damage", [b"", b"\n \n", b"short\n", NEW + b"\nshort\n", None])
def test_damaged_keys_leave_the_last_good_ones_in_force(tmp_path: Path, damage: bytes | None) -> None:
    keys = ClusterKeys(section(tmp_path, OLD))
    reloading = Reloading("cluster keys", keys.reload, FAILURES)
    before = FAILURES._value.get()

    path = tmp_path / "key"
    path.unlink() if damage is None else path.write_bytes(damage)
    for _ in range(3):
        assert not reloading.look()
    assert keys.ids() == [key_id(OLD)]
    assert FAILURES._value.get() == before + 1

    put(path, NEW, OLD)
    assert reloading.look()
    keys.tell()
    assert keys.ids() == [key_id(NEW), key_id(OLD)]
    ClusterKey(NEW).check(keys.signing.sign("GET", "h:1", "/"), "GET", "h:1", "/")
    assert not reloading.look()


def test_the_first_keys_must_be_good(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="at least 16"):
        ClusterKeys(section(tmp_path, b"short"))


def test_one_key_in_the_settings_is_all_there_is() -> None:
    keys = ClusterKeys(ClusterSection.model_validate({"hash_path_suffix": "x", "key": "the only key of enough bytes"}))

    assert not keys.reload()
    assert keys.ids() == [key_id(b"the only key of enough bytes")]


async def test_all_parts_of_a_service_have_the_same_keys(tmp_path: Path) -> None:
    cluster = section(tmp_path, OLD)
    app = create_base_app("object", trust_request_ids=True)

    assert use_keys(app, cluster) is use_keys(app, cluster)
