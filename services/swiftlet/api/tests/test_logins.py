"""Guessing secrets: how much of it is let through, and whom it disturbs."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import threading

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from swiftlet.api.context import logins
from swiftlet.api.tests.proxy import LOGIN, SECRET, Proxy
from swiftlet.placement.tests.cluster import ACCOUNT

V1 = {"X-Auth-User": LOGIN, "X-Auth-Key": SECRET}


async def log_in(proxy: Proxy, key: str = SECRET, **headers: str) -> int:
    async with proxy.client.get("/auth/v1.0", headers=V1 | {"X-Auth-Key": key} | headers) as response:
        return response.status


async def test_guesses_at_the_same_time_are_no_more_than_the_limit_allows(proxy: Proxy) -> None:
    statuses = await asyncio.gather(*(log_in(proxy, f"guess {number}") for number in range(30)))
    assert sorted(statuses) == [401] * 2 + [429] * 28


async def test_who_guesses_does_not_lock_out_who_has_the_key(proxy: Proxy) -> None:
    assert await log_in(proxy) == 200
    assert [await log_in(proxy, "guess") for _ in range(4)] == [401, 401, 429, 429]
    assert await log_in(proxy) == 200


async def test_a_changed_key_is_not_taken_for_the_old_one(proxy: Proxy) -> None:
    assert await log_in(proxy) == 200
    users = proxy.api.users
    users._path.write_text(users._path.read_text().replace("argon2id", "argon2i", 1))
    assert users.reload()
    assert await log_in(proxy) == 401


async def test_logins_wait_for_few_threads_within_a_bound(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "MAX_WAITING", 3)
    gate = threading.Event()
    monkeypatch.setattr(proxy.api.users, "login", lambda *_: gate.wait(20) and None)
    asked = [asyncio.create_task(log_in(proxy, **{"X-Auth-User": f"test:user-{number}"})) for number in range(9)]
    done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 4:
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert {task.result() for task in done} == {503}
    assert len(waiting) == logins.CHECKS_AT_ONCE + 3
    gate.set()
    await asyncio.gather(*waiting)


def asked_by(remote: str, forwarded: str | None) -> web.Request:
    headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
    return make_mocked_request("GET", "/", headers=headers).clone(remote=remote)


@pytest.mark.parametrize(
    ("remote", "forwarded", "address"),
    [
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "203.0.113.5", "203.0.113.5"),
        ("10.0.0.1", "6.6.6.6, 203.0.113.5", "203.0.113.5"),
        ("10.0.0.1", "203.0.113.5, 10.0.0.2", "203.0.113.5"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("198.51.100.7", "203.0.113.5", "198.51.100.7"),
    ],
)
def test_only_trusted_proxies_say_where_a_login_comes_from(remote: str, forwarded: str | None, address: str) -> None:
    trusted = [ipaddress.ip_network("10.0.0.0/8")]
    assert logins.client_address(asked_by(remote, forwarded), trusted) == address


@pytest.mark.parametrize("payload", [b"[" * 3000, b'{"a":' * 1000, b"[1]", b"nonsense", b"\xff"])
async def test_a_token_that_nobody_signed_is_not_parsed(proxy: Proxy, payload: bytes) -> None:
    token = "AUTH_tk" + ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (payload, bytes(32)))
    async with proxy.client.get(f"/v1/{ACCOUNT}", headers={"X-Auth-Token": token}) as response:
        assert response.status == 401
