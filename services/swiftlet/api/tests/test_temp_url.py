"""Temporary URLs: what they allow, every way in which one is refused, and the headers of their answers."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path as Directory

import pytest

from swiftlet.api.login.temp_url import _in_range, disposition, matcher, parse_expires
from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.api.tests.signing import KEY, temp_url
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.settings.access import TempUrlSection

ACCOUNT_KEY, CONTAINER_KEY = "X-Account-Meta-Temp-URL-Key", "X-Container-Meta-Temp-URL-Key"
BODY = b"secret data"
INVALID = b"401 Unauthorized: Temp URL invalid\n"


async def prepare(proxy: Proxy) -> None:
    """An object, and the key on the account."""
    assert (await proxy.call("POST", "", {ACCOUNT_KEY: KEY})).status == 204
    headers = {"X-Object-Meta-Color": "red", "X-Object-Meta-Public-Size": "big"}
    assert (await proxy.call("PUT", "c/o", headers, BODY)).status == 201


async def status(proxy: Proxy, method: str, query: str, path: str = "c/o") -> int:
    return (await proxy.anonymous(method, path, query=query, data=b"new" if method == "PUT" else None)).status


@pytest.mark.parametrize("digest", ["sha256", "sha512"])
@pytest.mark.parametrize("encoded", [False, True])
async def test_get(proxy: Proxy, digest: str, encoded: bool) -> None:
    await prepare(proxy)
    expires = int(time.time()) + 60
    query = temp_url("GET", expires=expires, digest=digest, encoded=encoded)
    answer = await proxy.anonymous("GET", "c/o", query=query)
    assert (answer.status, answer.body) == (200, BODY)
    assert answer.headers["Content-Disposition"] == "attachment; filename=\"o\"; filename*=UTF-8''o"
    assert answer.headers["Expires"] == formatdate(expires, usegmt=True)
    assert "X-Object-Meta-Color" not in answer.headers
    assert answer.headers["X-Object-Meta-Public-Size"] == "big"
    assert await status(proxy, "GET", query.replace("temp_url_sig=", "temp_url_sig=0")) == 401


async def test_iso_dates_mean_the_same_second(proxy: Proxy) -> None:
    await prepare(proxy)
    expires = int(time.time()) + 60
    text = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    query = temp_url("GET", expires=expires).replace(str(expires), text)
    assert await status(proxy, "GET", query) == 200


async def test_ranges_and_conditions_work(proxy: Proxy) -> None:
    await prepare(proxy)
    answer = await proxy.anonymous("GET", "c/o", {"Range": "bytes=0-5"}, query=temp_url("GET"))
    assert (answer.status, answer.body) == (206, BODY[:6])
    assert "Content-Disposition" in answer.headers
    answer = await proxy.anonymous("GET", "c/o", {"If-None-Match": "*"}, query=temp_url("GET"))
    assert answer.status == 304
    assert "Content-Disposition" not in answer.headers


async def test_put_post_and_delete(proxy: Proxy) -> None:
    await prepare(proxy)
    assert await status(proxy, "PUT", temp_url("PUT", "c/n"), "c/n") == 201
    assert (await proxy.call("GET", "c/n")).body == b"new"
    assert await status(proxy, "POST", temp_url("POST")) == 202
    assert await status(proxy, "DELETE", temp_url("DELETE")) == 204
    assert await status(proxy, "GET", temp_url("GET")) == 404


@pytest.mark.parametrize(
    ("signed", "asked", "expected"),
    [(signed, "HEAD", 200) for signed in ("HEAD", "GET", "PUT", "POST")]
    + [("DELETE", "HEAD", 401), ("HEAD", "GET", 401), ("PUT", "GET", 401), ("GET", "PUT", 401), ("PUT", "DELETE", 401)],
)
async def test_a_signature_is_for_one_method_and_head(proxy: Proxy, signed: str, asked: str, expected: int) -> None:
    await prepare(proxy)
    assert await status(proxy, asked, temp_url(signed)) == expected


async def test_refusals_tell_nothing(proxy: Proxy) -> None:
    await prepare(proxy)
    now = int(time.time())
    good = temp_url("GET")
    bad = [
        temp_url("GET", expires=now - 1),
        temp_url("GET", expires=0),
        temp_url("GET", key="other"),
        temp_url("GET", "c/other"),
        temp_url("GET", digest="md5", encoded=True),
        good.partition("&")[0],
        good.partition("&")[2],
        "temp_url_sig=&temp_url_expires=",
        good.replace("temp_url_expires=", "temp_url_expires=x"),
        f"temp_url_sig=%C3%A9&temp_url_expires={now + 60}",
        temp_url("GET", prefix="other"),
    ]
    for query in bad:
        answer = await proxy.anonymous("GET", "c/o", query=query)
        assert (answer.status, answer.body) == (401, INVALID), query
        assert answer.headers["WWW-Authenticate"] == f'Swift realm="{ACCOUNT}"'
        head = await proxy.anonymous("HEAD", "c/o", query=query)
        assert (head.status, head.body) == (401, b"")
    assert (await proxy.call("GET", "c/o", query=bad[0])).status == 401, "a token does not help a bad signature"
    for path in ("c", "", "c//", "c/%2F"):
        assert (await proxy.anonymous("GET", path, query=good)).status == 401
    assert (await proxy.client.get(f"/v1.0/{ACCOUNT}/c/o?{good}")).status == 401
    assert await status(proxy, "COPY", temp_url("COPY")) == 401


async def test_an_account_or_container_that_is_not_there_looks_the_same(proxy: Proxy) -> None:
    answer = await proxy.anonymous("GET", "missing/o", query=temp_url("GET", "missing/o"))
    assert (answer.status, answer.body) == (401, INVALID)
    await prepare(proxy)
    assert (await proxy.anonymous("GET", "missing/o", query=temp_url("GET", "missing/o"))).status == 404


@pytest.mark.parametrize("header", [ACCOUNT_KEY, ACCOUNT_KEY + "-2", CONTAINER_KEY, CONTAINER_KEY + "-2"])
async def test_keys_are_rotated(proxy: Proxy, header: str) -> None:
    await prepare(proxy)
    path = "" if header.startswith("X-Account") else "c"
    assert (await proxy.call("POST", "", {ACCOUNT_KEY: ""})).status == 204
    assert await status(proxy, "GET", temp_url("GET")) == 401
    for key in ("first", "second"):
        assert (await proxy.call("POST", path, {header: key})).status == 204
        assert await status(proxy, "GET", temp_url("GET", key=key)) == 200
    assert await status(proxy, "GET", temp_url("GET", key="first")) == 401


async def test_prefixes(proxy: Proxy) -> None:
    await prepare(proxy)
    for name in ("pre/a", "pre/sub/b", "pref", "other"):
        assert (await proxy.call("PUT", f"c/{name}", data=b"x")).status == 201
    query = temp_url("GET", prefix="pre/")
    for name, expected in (
        ("pre/a", 200),
        ("pre/sub/b", 200),
        ("pref", 401),
        ("other", 401),
        ("pre/%2E%2E/other", 404),
    ):
        assert await status(proxy, "GET", query, f"c/{name}") == expected
    assert await status(proxy, "GET", temp_url("GET", prefix=""), "c/other") == 200
    assert await status(proxy, "GET", query.replace("pre%2F", ""), "c/other") == 401


async def test_addresses(proxy: Proxy) -> None:
    await prepare(proxy)
    for ip_range, expected in (
        ("127.0.0.1", 200),
        ("127.0.0.0/8", 200),
        ("10.0.0.0/8", 401),
        ("127.0.0.1/8", 401),
        ("nonsense", 401),
        ("::1", 401),
    ):
        assert await status(proxy, "GET", temp_url("GET", ip_range=ip_range)) == expected
    bound = temp_url("GET", ip_range="10.0.0.0/8")
    assert await status(proxy, "GET", bound.replace("10.0.0.0%2F8", "127.0.0.0%2F8")) == 401
    unbound = "&".join(part for part in bound.split("&") if not part.startswith("temp_url_ip_range"))
    assert await status(proxy, "GET", unbound) == 401
    forwarded = await proxy.anonymous("GET", "c/o", {"X-Forwarded-For": "10.0.0.1"}, query=bound)
    assert forwarded.status == 401


def test_addresses_of_either_family() -> None:
    assert _in_range("::ffff:10.1.2.3", "10.0.0.0/8")
    assert _in_range("2001:db8::1", "2001:db8::/32")
    assert not _in_range(None, "10.0.0.0/8")
    assert not _in_range("/run/socket", "0.0.0.0/0")


@pytest.mark.parametrize(
    ("more", "disposition"),
    [
        ("filename=My+File.pdf", "attachment; filename=\"My File.pdf\"; filename*=UTF-8''My%20File.pdf"),
        ("inline", "inline"),
        ("inline=anything", "inline"),
        ("inline&filename=a.txt", "inline; filename=\"a.txt\"; filename*=UTF-8''a.txt"),
        ("filename=", "attachment; filename=\"o\"; filename*=UTF-8''o"),
        (
            "filename=a%0D%0ASet-Cookie:%20x=y",
            "attachment; filename=\"a%0D%0ASet-Cookie%3A x%3Dy\"; filename*=UTF-8''a%0D%0ASet-Cookie%3A%20x%3Dy",
        ),
        ("filename=%22;evil=%22", "attachment; filename=\"%22%3Bevil%3D%22\"; filename*=UTF-8''%22%3Bevil%3D%22"),
        ("filename=%C3%A9%5C", "attachment; filename=\"%C3%A9%5C\"; filename*=UTF-8''%C3%A9%5C"),
    ],
)
async def test_dispositions(proxy: Proxy, more: str, disposition: str) -> None:
    await prepare(proxy)
    answer = await proxy.anonymous("GET", "c/o", query=temp_url("GET", more=more))
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == disposition
    assert "Set-Cookie" not in answer.headers
    assert (await proxy.anonymous("HEAD", "c/o", query=temp_url("GET", more=more))).headers[
        "Content-Disposition"
    ] == disposition


async def test_the_objects_own_disposition_comes_before_its_name(proxy: Proxy) -> None:
    await prepare(proxy)
    assert (await proxy.call("PUT", "c/o", {"Content-Disposition": "inline; filename=x"}, BODY)).status == 201
    for more, expected in (("", "inline; filename=x"), ("filename=y", disposition("attachment", "y"))):
        answer = await proxy.anonymous("GET", "c/o", query=temp_url("GET", more=more))
        assert answer.headers["Content-Disposition"] == expected


async def test_the_name_is_what_follows_the_last_slash(proxy: Proxy) -> None:
    await prepare(proxy)
    assert (await proxy.call("PUT", "c/a/b/", data=b"x")).status == 201
    answer = await proxy.anonymous("GET", "c/a/b/", query=temp_url("GET", "c/a/b/"))
    assert answer.headers["Content-Disposition"] == disposition("attachment", "b")


@pytest.mark.parametrize("header", ["X-Object-Manifest", "X-Symlink-Target", "X-Copy-From"])
@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_uploads_can_not_point_elsewhere(proxy: Proxy, header: str, method: str) -> None:
    await prepare(proxy)
    answer = await proxy.anonymous(method, "c/o", {header: "c/o"}, query=temp_url(method))
    assert answer.status == 400
    assert header.encode() in answer.body
    assert (await proxy.call("GET", "c/o")).body == BODY


async def test_parameters_that_are_not_signed_mean_nothing(proxy: Proxy) -> None:
    await prepare(proxy)
    manifest = b'[{"path": "/c/o"}]'
    query = temp_url("PUT", "c/m", more="multipart-manifest=put&heartbeat=on")
    assert (await proxy.anonymous("PUT", "c/m", data=manifest, query=query)).status == 201
    assert (await proxy.call("GET", "c/m")).body == manifest


async def test_a_containers_key_reaches_no_other_container(proxy: Proxy) -> None:
    assert (await proxy.call("POST", "c", {CONTAINER_KEY: KEY})).status == 204
    assert (await proxy.call("PUT", "parts")).status == 201
    assert (await proxy.call("PUT", "parts/1", data=b"part")).status == 201
    manifest = b'[{"path": "/parts/1"}]'
    assert (await proxy.call("PUT", "c/m", data=manifest, query="multipart-manifest=put")).status == 201
    assert await status(proxy, "GET", temp_url("GET", "c/m"), "c/m") == 409
    assert await status(proxy, "GET", temp_url("GET", "parts/1"), "parts/1") == 401
    assert (await proxy.call("POST", "", {ACCOUNT_KEY: KEY})).status == 204
    assert await status(proxy, "GET", temp_url("GET", "c/m"), "c/m") == 200


async def test_keys_are_asked_for_once(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    await prepare(proxy)
    asked: list[str] = []
    account_info = proxy.cluster.listings.account_info

    async def counted(account: str) -> object:
        asked.append(account)
        return await account_info(account)

    proxy.api.accounts.forget(ACCOUNT)
    monkeypatch.setattr(proxy.api.accounts, "_fetch", counted)
    for _ in range(5):
        assert await status(proxy, "GET", temp_url("GET")) == 200
    assert asked == [ACCOUNT]


async def test_settings(cluster: MemoryCluster, tmp_path: Directory) -> None:
    section = TempUrlSection(
        methods=("GET", "PUT"),
        allowed_digests=("sha1",),
        incoming_remove_headers=("X-Object-Meta-*",),
        incoming_allow_headers=("X-Object-Meta-Ok",),
        outgoing_remove_headers=("Etag",),
        outgoing_allow_headers=(),
    )
    async with proxy_of(cluster, tmp_path, tempurl=section) as proxy:
        await prepare(proxy)
        headers = {"X-Object-Meta-Bad": "1", "X-Object-Meta-Ok": "2"}
        put = await proxy.anonymous("PUT", "c/n", headers, b"streamed" * 1000, temp_url("PUT", "c/n", digest="sha1"))
        assert put.status == 201
        assert "Etag" not in put.headers
        answer = await proxy.anonymous("GET", "c/n", query=temp_url("GET", "c/n", digest="sha1"))
        assert (answer.headers["X-Object-Meta-Ok"], answer.body) == ("2", b"streamed" * 1000)
        assert not {"X-Object-Meta-Bad", "Etag"} & set(answer.headers)
        assert await status(proxy, "DELETE", temp_url("DELETE", digest="sha1")) == 401
        assert await status(proxy, "GET", temp_url("GET")) == 401
        shown = await (await proxy.client.get("/info")).json()
        assert shown["tempurl"] == {
            "methods": ["GET", "PUT"],
            "allowed_digests": ["sha1"],
            "incoming_remove_headers": ["X-Object-Meta-*"],
            "incoming_allow_headers": ["X-Object-Meta-Ok"],
            "outgoing_remove_headers": ["Etag"],
            "outgoing_allow_headers": [],
        }


async def test_switched_off(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, tempurl=TempUrlSection(enabled=False)) as proxy:
        await prepare(proxy)
        assert await status(proxy, "GET", temp_url("GET")) == 401
        assert (await proxy.call("GET", "c/o", query="temp_url_sig=x")).status == 200
        assert "tempurl" not in await (await proxy.client.get("/info")).json()


@pytest.mark.parametrize(
    ("text", "expires"),
    [
        ("0", 0),
        ("1700000000", 1_700_000_000),
        ("2011-12-10T01:11:25Z", 1_323_479_485),
        ("9999-12-31T23:59:59Z", 253_402_300_799),
        *(
            (text, 0)
            for text in ("", "-1", "1.5", "1e9", "\u0661", "1_000", "9" * 19, "2011-12-10", "2011-13-10T01:11:25Z")
        ),
    ],
)
def test_times(text: str, expires: int) -> None:
    assert parse_expires(text) == expires


async def test_a_very_late_expiry_is_no_error(proxy: Proxy) -> None:
    await prepare(proxy)
    answer = await proxy.anonymous("GET", "c/o", query=temp_url("GET", expires=10**18 - 1))
    assert answer.headers["Expires"] == "Fri, 31 Dec 9999 23:59:59 GMT"


def test_patterns_of_headers() -> None:
    drops = matcher(["X-Object-Meta-*", "etag"], ["x-object-meta-public-*"])
    dropped = [name for name in ("x-object-meta-a", "ETag", "X-Object-Meta-Public-B", "Etags") if drops(name)]
    assert dropped == ["x-object-meta-a", "ETag"]


async def test_the_signature_covers_the_decoded_name(proxy: Proxy) -> None:
    await prepare(proxy)
    assert (await proxy.call("PUT", "c/%C3%A9%20a", data=b"x")).status == 201
    assert await status(proxy, "GET", temp_url("GET", "c/\u00e9 a"), "c/%C3%A9%20a") == 200
    assert await status(proxy, "GET", temp_url("GET", "c/%C3%A9%20a"), "c/%C3%A9%20a") == 401
