"""Where credentials are found, and what is asked of Keystone with them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from swiftlet.client import (
    V1,
    ApplicationCredential,
    AsyncClient,
    Catalog,
    ConfigurationError,
    ConnectionFailed,
    Credentials,
    KeystoneName,
    KeystonePassword,
    KeystoneToken,
    MountedSecret,
    NotFound,
    Options,
    StatusError,
    Token,
    find_credentials,
)

ST = {"ST_AUTH": "http://a/auth/v1.0", "ST_USER": "test:anna", "ST_KEY": "k"}
OS = {"OS_AUTH_URL": "http://k/v3", "OS_USERNAME": "anna", "OS_PASSWORD": "p", "OS_PROJECT_NAME": "test"}
ANNA, TEST = KeystoneName(name="anna"), KeystoneName(name="test")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (ST, V1(auth_url="http://a/auth/v1.0", user="test:anna", key="k")),
        ({**ST, **OS}, V1(auth_url="http://a/auth/v1.0", user="test:anna", key="k")),
        (OS, KeystonePassword(auth_url="http://k/v3", user=ANNA, password="p", project=TEST)),
        (
            {**ST, "ST_AUTH_VERSION": "3"},
            KeystonePassword(auth_url="http://a/auth/v1.0", user=ANNA, password="k", project=TEST),
        ),
        (
            {**OS, "OS_REGION_NAME": "r", "OS_ENDPOINT_TYPE": "internalURL", "OS_PROJECT_DOMAIN_NAME": "d"},
            KeystonePassword(
                auth_url="http://k/v3",
                user=ANNA,
                password="p",
                project=KeystoneName(name="test", domain_name="d"),
                catalog=Catalog(region="r", interface="internal"),
            ),
        ),
        (
            {"OS_AUTH_URL": "http://k", "OS_AUTH_TOKEN": "t", "OS_PROJECT_ID": "i"},
            KeystoneToken(auth_url="http://k", token="t", project=KeystoneName(id="i")),
        ),
        (
            {
                "OS_AUTH_URL": "http://k",
                "OS_APPLICATION_CREDENTIAL_ID": "i",
                "OS_APPLICATION_CREDENTIAL_SECRET": "s",
            },
            ApplicationCredential(auth_url="http://k", id="i", secret="s"),
        ),
        ({**ST, **OS, "OS_STORAGE_URL": "http://s", "OS_AUTH_TOKEN": "t"}, Token(storage_url="http://s", token="t")),
        ({"SWIFTLET_CREDENTIALS": "/x"}, MountedSecret(directory="/x")),
    ],
)
def test_the_environment_has_credentials(environment: dict[str, str], expected: Credentials) -> None:
    assert find_credentials(environment) == expected
    assert pickle.loads(pickle.dumps(expected)) == expected


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({}, "ST_AUTH, ST_USER and ST_KEY"),
        ({"ST_AUTH": "http://a"}, "ST_USER and ST_KEY"),
        ({"OS_AUTH_URL": "http://k"}, "OS_PASSWORD"),
        ({"OS_AUTH_URL": "http://k", "OS_APPLICATION_CREDENTIAL_SECRET": "s"}, "OS_APPLICATION_CREDENTIAL_ID"),
    ],
)
def test_what_is_missing_is_named(environment: dict[str, str], missing: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=missing):
        find_credentials(environment, mounted_at=str(tmp_path))


def test_a_mounted_secret_is_read_at_each_login(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("first\n")
    found = find_credentials({}, mounted_at=str(tmp_path))
    assert isinstance(found, MountedSecret)
    with pytest.raises(ConfigurationError, match=r"authUrl.*ST_AUTH"):
        found.read()
    (tmp_path / "authUrl").write_text("http://a/auth/v1.0")
    (tmp_path / "user").write_text("test:anna")
    assert found.read() == V1(auth_url="http://a/auth/v1.0", user="test:anna", key="first")
    (tmp_path / "key").write_text("second")
    assert found.read().key == "second"


class Keystone:
    """A Keystone that notes what it is asked, and gives a token for itself as the store."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.catalog: list[Any] = []

    async def tokens(self, request: web.Request) -> web.Response:
        """Give a token."""
        self.asked.append(json.loads(await request.read())["auth"])
        document = {"token": {"catalog": self.catalog}}
        return web.json_response(document, status=201, headers={"X-Subject-Token": "t"})


@pytest.fixture
def keystone() -> Keystone:
    return Keystone()


def app(keystone: Keystone) -> web.Application:
    made = web.Application()
    made.router.add_post("/v3/auth/tokens", keystone.tokens)
    return made


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (
            {"id": "i", "secret": "s"},
            {"methods": ["application_credential"], "application_credential": {"id": "i", "secret": "s"}},
        ),
        (
            {"name": "n", "secret": "s", "user": ANNA},
            {
                "methods": ["application_credential"],
                "application_credential": {
                    "name": "n",
                    "user": {"name": "anna", "domain": {"id": "default"}},
                    "secret": "s",
                },
            },
        ),
    ],
)
async def test_application_credentials(keystone: Keystone, kind: dict[str, Any], asked: Any) -> None:
    async with TestServer(app(keystone)) as server:
        url = str(server.make_url("/"))
        endpoints = [
            {"interface": "internal", "url": "http://inside", "region": "r"},
            {"interface": "public", "url": f"{url}v1/AUTH_x", "region": "r"},
        ]
        keystone.catalog = [{"type": "object-store", "endpoints": endpoints}]
        async with AsyncClient(ApplicationCredential(auth_url=url, **kind)) as client:
            assert await client.storage_url() == f"{url}v1/AUTH_x"
            with pytest.raises(NotFound) as refused:
                await client.head("c", "o")
            assert "HEAD c/o" in str(refused.value)
    assert keystone.asked == [{"identity": asked}]


async def test_a_catalog_without_the_store(keystone: Keystone) -> None:
    async with TestServer(app(keystone)) as server:
        given = KeystonePassword(auth_url=str(server.make_url("/v3")), user=ANNA, password="p", project=TEST)
        async with AsyncClient(given) as client:
            with pytest.raises(ConfigurationError, match="OS_STORAGE_URL"):
                await client.storage_url()
    assert keystone.asked[0]["scope"] == {"project": {"name": "test", "domain": {"id": "default"}}}


async def test_a_store_that_is_away(unused_tcp_port: int) -> None:
    given = V1(auth_url=f"http://127.0.0.1:{unused_tcp_port}/auth/v1.0", user="u", key="k")
    async with AsyncClient(given, Options(retries=0)) as client:
        with pytest.raises(ConnectionFailed) as refused:
            await client.account()
    assert not refused.value.sent


def test_errors_and_options_are_values() -> None:
    error = pickle.loads(pickle.dumps(ConnectionFailed("gone", sent=False)))
    assert (str(error), error.sent) == ("gone", False)
    refused = pickle.loads(pickle.dumps(NotFound(404, "Not Found", "GET c/o", "tx1")))
    assert isinstance(refused, StatusError)
    assert str(refused) == "GET c/o: 404 Not Found (request tx1)"
    with pytest.raises(ConfigurationError, match="concurrency"):
        Options(concurrency=0)
