"""Containers as web sites, as visitors without a token see them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from html import unescape
from pathlib import Path as Directory
from urllib.parse import quote, unquote

import pytest

from swiftlet.api.reading.web_listing import readable_size
from swiftlet.api.tests.proxy import Answer, Proxy, proxy_of
from swiftlet.api.tests.signing import KEY, signature
from swiftlet.auth.identity import Role
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.settings import LimitsSection
from swiftlet.settings.bulk import StaticWebSection

OPEN = {"X-Container-Read": ".r:*,.rlistings"}
INDEX = {"X-Container-Meta-Web-Index": "index.html"}
LISTINGS = {"X-Container-Meta-Web-Listings": "true"}
ERROR = {"X-Container-Meta-Web-Error": "error.html"}
HTML = "text/html; charset=utf-8"


async def site(proxy: Proxy, *headers: Mapping[str, str], objects: Mapping[str, bytes] | None = None) -> None:
    """A container `w` with these objects."""
    merged = {name: value for some in headers for name, value in some.items()}
    assert (await proxy.call("PUT", "w", merged)).status == 201
    for name, data in (objects or {}).items():
        assert (
            await proxy.call("PUT", "w/" + quote(name).replace(".", "%2E"), {"X-Detect-Content-Type": "1"}, data)
        ).status == 201


async def see(
    proxy: Proxy, path: str, headers: Mapping[str, str] | None = None, method: str = "GET", query: str = ""
) -> Answer:
    """What a visitor is answered; redirects are not followed."""
    url = proxy.url(path, query)
    async with proxy.client.request(method, url, headers=headers, allow_redirects=False) as response:
        return Answer(response.status, response.headers.copy(), await response.read())


def links(answer: Answer) -> list[tuple[str, str]]:
    """Where the links of a page lead, and how they are called."""
    found = re.findall(r'<a href="([^"]*)">([^<]*)</a>', answer.body.decode())
    return [(unquote(unescape(link)), unescape(name)) for link, name in found]


PAGES = {"index.html": b"<p>home", "sub/index.html": b"<p>sub", "sub/deep/a.txt": b"a", "b.txt": b"b"}


async def test_index_pages(proxy: Proxy) -> None:
    await site(proxy, OPEN, INDEX, objects=PAGES)
    for path, body in [("w/", b"<p>home"), ("w/index.html", b"<p>home"), ("w/sub/", b"<p>sub"), ("w/b.txt", b"b")]:
        answer = await see(proxy, path)
        assert (answer.status, answer.body) == (200, body), path
    assert (await see(proxy, "w/")).headers["Content-Type"] == "text/html"
    head = await see(proxy, "w/", method="HEAD")
    assert (head.status, head.headers["Content-Length"], head.body) == (200, "7", b"")
    assert (await see(proxy, "w/", {"Range": "bytes=0-2"})).status == 206
    etag = (await see(proxy, "w/")).headers["Etag"]
    assert (await see(proxy, "w/", {"If-None-Match": etag})).status == 304


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_missing_slash_is_added(proxy: Proxy, method: str) -> None:
    await site(proxy, OPEN, INDEX, LISTINGS, objects=PAGES | {"d \u00e9/x": b"x"})
    for path in ("w", "w/sub", "w/sub/deep", "w/d%20%C3%A9"):
        answer = await see(proxy, path, method=method, query="a=b")
        assert (answer.status, answer.headers["Location"]) == (
            301,
            str(proxy.client.make_url(f"/v1/{ACCOUNT}/{path}/")),
        )


async def test_an_index_can_be_seen_where_listings_are_not_allowed(proxy: Proxy) -> None:
    await site(proxy, {"X-Container-Read": ".r:*"}, INDEX, LISTINGS, objects=PAGES)
    assert (await see(proxy, "w/")).body == b"<p>home"
    assert (await see(proxy, "w/sub")).status == 301
    assert (await see(proxy, "w/sub/deep/")).status == 401
    assert (await see(proxy, "w/sub/deep")).status == 404


async def test_listings(proxy: Proxy) -> None:
    await site(proxy, OPEN, LISTINGS, objects=PAGES | {"big.bin": bytes(3000)})
    answer = await see(proxy, "w/")
    assert (answer.status, answer.headers["Content-Type"]) == (200, HTML)
    page = answer.body.decode()
    assert f"<title>Listing of /v1/{ACCOUNT}/w/</title>" in page
    assert links(answer) == [
        ("./sub/", "sub/"),
        ("./b.txt", "b.txt"),
        ("./big.bin", "big.bin"),
        ("./index.html", "index.html"),
    ]
    assert '<td class="colsize">3Ki</td>' in page
    assert 'class="item type-text type-html"' in page
    assert '<td class="coldate">1970-01-01 00:16:40</td>' in page
    deep = await see(proxy, "w/sub/")
    assert links(deep) == [("../", "../"), ("./deep/", "deep/"), ("./index.html", "index.html")]
    assert (await see(proxy, "w/nothing/")).status == 404
    assert (await see(proxy, "w/nothing")).status == 404
    empty = await see(proxy, "w/", method="HEAD")
    assert (empty.status, empty.body) == (200, b"")


async def test_a_listing_ends_somewhere(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(container_listing_limit=3)) as proxy:
        await site(proxy, OPEN, LISTINGS, objects={f"{number}": b"" for number in range(5)})
        assert len(links(await see(proxy, "w/"))) == 3


async def test_listings_that_are_off(proxy: Proxy) -> None:
    await site(proxy, OPEN, INDEX, objects={"a/b": b"x"})
    answer = await see(proxy, "w/a/")
    assert (answer.status, answer.headers["Content-Type"]) == (404, HTML)
    assert b"Web Listing Disabled" in answer.body
    assert b"index.html is not there" in answer.body


async def test_style_sheets_and_labels(proxy: Proxy) -> None:
    css = {"X-Container-Meta-Web-Listings-CSS": "style/list.css", "X-Container-Meta-Web-Listings-Label": "example.com"}
    await site(proxy, OPEN, LISTINGS, css, objects={"a/b/c": b"x"})
    page = (await see(proxy, "w/a/b/")).body.decode()
    assert '<link rel="stylesheet" type="text/css" href="../../style/list.css" />' in page
    assert "Listing of example.com/a/b/" in page
    await proxy.call("POST", "w", {"X-Container-Meta-Web-Listings-CSS": "https://example.com/x.css"})
    assert 'href="https://example.com/x.css"' in (await see(proxy, "w/")).body.decode()


EVIL = "\"><script>alert(1)</script>&'.html"


async def test_names_are_text(proxy: Proxy) -> None:
    settings = {
        "X-Container-Meta-Web-Listings-Label": EVIL,
        "X-Container-Meta-Web-Listings-CSS": EVIL,
        "X-Container-Meta-Web-Index": EVIL,
    }
    names = {EVIL: b"x", EVIL + "/" + EVIL: b"x", "javascript:alert(1)": b"x", "../up": b"x", "/root": b"x"}
    await site(proxy, OPEN, LISTINGS, settings, objects=names)
    await proxy.call("PUT", "w/odd", {"Content-Type": "text/<script>"}, b"x")
    for path in ("w/", "w/" + quote(EVIL) + "/", "w/../"):
        answer = await see(proxy, path)
        if answer.headers["Content-Type"] == HTML:
            page = answer.body.decode()
            assert "<script" not in page
            assert not re.search(r"<[^>]*'[^>]*>", page)
    await proxy.call("POST", "w", {"X-Remove-Container-Meta-Web-Index": "x"})
    shown = await see(proxy, "w/")
    assert "<script" not in shown.body.decode()
    hrefs = re.findall(r'href="([^"]*)"', shown.body.decode())[1:]
    assert all(href.startswith("./") and ".." not in href for href in hrefs), hrefs
    assert any("%2E%2E" in href for href in hrefs)
    absent = await see(proxy, "w/" + quote("<script>") + "/")
    assert (absent.status, absent.headers["Content-Type"]) == (404, "text/plain; charset=utf-8")


async def test_error_pages(proxy: Proxy) -> None:
    pages = {"404error.html": b"<p>not here", "401error.html": b"<p>not for you", "dir/x": b"x"}
    await site(proxy, {"X-Container-Read": ".r:*"}, INDEX, ERROR, LISTINGS, objects=pages)
    for path in ("w/absent", "w/absent/", "w/a/b/c"):
        answer = await see(proxy, path, {"Range": "bytes=0-2", "If-None-Match": "*"})
        status = 404 if path != "w/absent/" else 401
        assert answer.status == status, path
    answer = await see(proxy, "w/absent")
    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (404, b"<p>not here", "text/html")
    refused = await see(proxy, "w/dir/")
    assert (refused.status, refused.body) == (401, b"<p>not for you")
    assert "WWW-Authenticate" in refused.headers
    head = await see(proxy, "w/absent", method="HEAD")
    assert (head.status, head.body, head.headers["Content-Length"]) == (404, b"", "11")


async def test_error_pages_that_are_not_there(proxy: Proxy) -> None:
    await site(proxy, OPEN, INDEX, ERROR)
    assert b"does not exist" in (await see(proxy, "w/absent")).body
    assert b"Web Listing Disabled" in (await see(proxy, "w/")).body


async def test_error_pages_alone(proxy: Proxy) -> None:
    await site(proxy, OPEN, ERROR, objects={"404error.html": b"<p>not here", "a": b"a"})
    assert (await see(proxy, "w/absent")).body == b"<p>not here"
    assert (await see(proxy, "w/a")).body == b"a"
    assert (await see(proxy, "w")).headers["Content-Type"].startswith("text/plain"), "an ordinary listing"


@pytest.mark.parametrize("kind", [None, "text/x-dir"])
async def test_directory_markers(proxy: Proxy, kind: str | None) -> None:
    headers = {} if kind is None else {"X-Container-Meta-Web-Directory-Type": kind}
    await site(proxy, OPEN, INDEX, LISTINGS, headers, objects={"sub/index.html": b"<p>sub", "other/a": b"a"})
    for name in ("sub", "other"):
        await proxy.call("PUT", f"w/{name}", {"Content-Type": kind or "application/directory"}, b"")
        assert (await see(proxy, f"w/{name}")).status == 301
    assert (await see(proxy, "w/sub/")).body == b"<p>sub"
    await proxy.call("PUT", "w/sub", {"Content-Type": kind or "application/directory"}, b"more than a marker")
    assert (await see(proxy, "w/sub")).body == b"more than a marker"


async def test_with_a_token_only_if_asked_for(proxy: Proxy) -> None:
    await site(proxy, INDEX, LISTINGS, objects=PAGES)
    assert (await proxy.call("GET", "w/")).headers["Content-Type"].startswith("text/plain")
    assert (await proxy.call("GET", "w/absent")).status == 404
    shown = await proxy.call("GET", "w/", {"X-Web-Mode": "true"})
    assert (shown.status, shown.body) == (200, b"<p>home")
    listing = await proxy.call("GET", "w/sub/deep/", {"X-Web-Mode": "TRUE"})
    assert links(listing) == [("../", "../"), ("./a.txt", "a.txt")]
    assert (await proxy.call("GET", "c", {"X-Web-Mode": "true"})).status == 404, "no site"
    assert (await proxy.call("GET", "w/b.txt", {"X-Web-Mode": "true"})).body == b"b"
    stranger = proxy.token_of("other:stranger", Role.USER)
    for path in ("w/", "w/b.txt", "w/sub/"):
        assert (await proxy.call("GET", path, {"X-Web-Mode": "true", **stranger})).status == 403


async def test_a_private_site_shows_nothing(proxy: Proxy) -> None:
    await site(proxy, INDEX, LISTINGS, ERROR, objects=PAGES | {"401error.html": b"secret", "404error.html": b"secret"})
    for path in ("w", "w/", "w/b.txt", "w/absent", "w/sub", "w/sub/"):
        answer = await see(proxy, path)
        assert answer.status == 401, path
        assert b"secret" not in answer.body
        assert "Location" not in answer.headers


async def test_what_is_no_site(proxy: Proxy) -> None:
    await site(proxy, OPEN, objects=PAGES)
    assert (await see(proxy, "w/")).headers["Content-Type"].startswith("text/plain")
    assert (await see(proxy, "w/sub/")).status == 404
    assert (await see(proxy, "absent/")).status == 401
    assert (await see(proxy, "")).status == 401
    assert (await proxy.anonymous("POST", "w", {"X-Container-Meta-Web-Index": "x"})).status == 401


def signed_prefix(prefix: str, **more: str) -> str:
    expires = int(time.time()) + 60
    sig = signature(f"GET\n{expires}\nprefix:/v1/{ACCOUNT}/w/{prefix}", KEY)
    fields = {"temp_url_sig": sig, "temp_url_expires": str(expires), "temp_url_prefix": prefix} | more
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items())


async def test_temporary_urls_for_a_prefix(proxy: Proxy) -> None:
    await proxy.call("POST", "", {"X-Account-Meta-Temp-URL-Key": KEY})
    objects = {"pre/a": b"a", "pre/sub/b": b"b", "pre/home/index.html": b"<p>home", "pre": b"", "secret": b"x"}
    await site(proxy, INDEX, LISTINGS, ERROR, objects=objects | {"404error.html": b"secret"})
    query = signed_prefix("pre/")
    listing = await see(proxy, "w/pre/", query=query)
    assert listing.status == 200
    assert listing.headers["Content-Disposition"] == "inline"
    assert [name for _, name in links(listing)] == ["home/", "sub/", "a"], "no way out of the prefix"
    link = re.findall(r'href="\./a([^"]*)"', listing.body.decode())[0]
    assert (await see(proxy, "w/pre/a", query=unescape(link).removeprefix("?"))).body == b"a"
    deeper = await see(proxy, "w/pre/sub/", query=query)
    assert [name for _, name in links(deeper)] == ["../", "b"]
    assert (await see(proxy, "w/pre/home/", query=query)).body == b"<p>home"
    redirect = await see(proxy, "w/pre/home", query=query)
    assert (redirect.status, redirect.headers["Location"]) == (
        301,
        str(proxy.client.make_url(f"/v1/{ACCOUNT}/w/pre/home/")),
    )
    missing = await see(proxy, "w/pre/absent", query=query)
    assert (missing.status, b"secret" in missing.body) == (404, False)
    assert (await see(proxy, "w/", query=query)).status == 401
    assert (await see(proxy, "w/secret", query=query)).status == 401


async def test_temporary_urls_for_one_object_list_nothing(proxy: Proxy) -> None:
    await proxy.call("POST", "", {"X-Account-Meta-Temp-URL-Key": KEY})
    await site(proxy, INDEX, LISTINGS, objects={"pre/a": b"a", "pre/index.html": b"x"})
    expires = int(time.time()) + 60
    sig = signature(f"GET\n{expires}\n/v1/{ACCOUNT}/w/pre/", KEY)
    answer = await see(proxy, "w/pre/", query=f"temp_url_sig={quote(sig, safe='')}&temp_url_expires={expires}")
    assert answer.status == 404


async def test_switched_off(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, static_web=StaticWebSection(enabled=False)) as proxy:
        await site(proxy, OPEN, INDEX, objects=PAGES)
        assert (await see(proxy, "w/")).headers["Content-Type"].startswith("text/plain")
        async with proxy.client.get("/info") as response:
            assert "staticweb" not in await response.json()


async def test_info(proxy: Proxy) -> None:
    async with proxy.client.get("/info") as response:
        assert (await response.json())["staticweb"] == {}


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0"), (1023, "1023"), (1024, "1Ki"), (1536, "2Ki"), (5 << 30, "5Gi"), (1 << 90, "1024Yi")],
)
def test_sizes(size: int, shown: str) -> None:
    assert readable_size(size) == shown
