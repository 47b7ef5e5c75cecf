"""Forms over HTTP: what is stored, what the browser is told, and every way in which a form is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path as Directory
from urllib.parse import quote

import pytest

from swiftlet.api.tests.proxy import SMALL, Answer, Proxy, proxy_of
from swiftlet.api.tests.signing import KEY, signature
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster
from swiftlet.settings import LimitsSection
from swiftlet.settings.access import FormPostSection

BOUNDARY = "----WebKitFormBoundaryAbC"
TYPE = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
BIG = bytes(range(256)) * 256
File = tuple[str, bytes, str]
"""Name, bytes, and more header lines."""


def encode(fields: Mapping[str, str], files: Sequence[File], after: Mapping[str, str] | None = None) -> bytes:
    """A form as browsers send it."""

    def field_of(name: str, value: str) -> bytes:
        return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()

    parts = [field_of(*item) for item in fields.items()]
    for number, (name, data, more) in enumerate(files):
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file{number}"; filename="{name}"\r\n{more}\r\n'
        parts.append(head.encode() + data + b"\r\n")
    parts += [field_of(*item) for item in (after or {}).items()]
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def signed(
    path: str = "c/up/", key: str = KEY, digest: str = "sha256", encoded: bool = False, **fields: str
) -> dict[str, str]:
    """The fields of a form for `path` below the account, with its signature."""
    given = {"redirect": "", "max_file_size": "100000", "max_file_count": "3", "expires": str(int(time.time()) + 60)}
    given |= fields
    values = [given[name] for name in ("redirect", "max_file_size", "max_file_count", "expires")]
    given["signature"] = signature("\n".join([f"/v1/{ACCOUNT}/{path}", *values]), key, digest, encoded)
    return {name: value for name, value in given.items() if value or name != "redirect"}


async def submit(
    proxy: Proxy, fields: Mapping[str, str], *files: File, path: str = "c/up/", after: Mapping[str, str] | None = None
) -> Answer:
    """Send a form; redirects are not followed."""
    data = encode(fields, files, after)
    url = proxy.url(quote(path))
    async with proxy.client.post(url, data=data, headers=TYPE, allow_redirects=False) as response:
        return Answer(response.status, response.headers.copy(), await response.read())


async def prepare(proxy: Proxy, **headers: str) -> None:
    assert (await proxy.call("POST", "", {"X-Account-Meta-Temp-URL-Key": KEY, **headers})).status == 204


async def names(proxy: Proxy) -> list[str]:
    return [row["name"] for row in json.loads((await proxy.call("GET", "c", query="format=json")).body)]


@pytest.mark.parametrize("digest", ["sha1", "sha256", "sha512"])
@pytest.mark.parametrize("encoded", [False, True])
async def test_files_become_objects(proxy: Proxy, digest: str, encoded: bool) -> None:
    await prepare(proxy)
    files = [("a.txt", b"small", ""), ("dir/b.bin", BIG, ""), ("\u00e9 +%.txt", b"", "")]
    answer = await submit(proxy, signed(digest=digest, encoded=encoded), *files)
    assert (answer.status, answer.body) == (201, b"201 Created")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert await names(proxy) == ["up/a.txt", "up/dir/b.bin", "up/\u00e9 +%.txt"]
    assert (await proxy.call("GET", "c/up/dir/b.bin")).body == BIG
    assert (await proxy.call("GET", "c/up/a.txt")).headers["Content-Type"] == "text/plain"


@pytest.mark.parametrize(
    ("path", "name"),
    [("c", "f"), ("c/", "f"), ("c/pre", "pref"), ("c/a b/", "a b/f")],
)
async def test_the_path_is_a_prefix_of_the_name(proxy: Proxy, path: str, name: str) -> None:
    await prepare(proxy)
    assert (await submit(proxy, signed(path), ("f", b"x", ""), path=path)).status == 201
    assert await names(proxy) == [name]


async def test_keys_of_the_container_and_second_keys_sign_too(proxy: Proxy) -> None:
    await prepare(proxy, **{"X-Account-Meta-Temp-URL-Key-2": "second"})
    assert (await proxy.call("POST", "c", {"X-Container-Meta-Temp-URL-Key": "container's"})).status == 204
    for key in (KEY, "second", "container's"):
        assert (await submit(proxy, signed(key=key), ("f", b"x", ""))).status == 201


async def test_headers_of_files_and_of_the_form(proxy: Proxy) -> None:
    await prepare(proxy)
    head = "Content-Type: image/png\r\nContent-Encoding: gzip\r\nX-Object-Meta-A: no\r\n"
    assert (await submit(proxy, signed(), ("own", b"x", head), ("none", b"x", ""))).status == 201
    own = (await proxy.call("GET", "c/up/own")).headers
    assert (own["Content-Type"], own["Content-Encoding"]) == ("image/png", "gzip")
    assert "X-Object-Meta-A" not in own
    assert (await proxy.call("GET", "c/up/none")).headers["Content-Type"] == "application/octet-stream"
    fields = signed() | {"content-type": "text/css", "content-encoding": "br"}
    assert (await submit(proxy, fields, ("forced", b"x", head))).status == 201
    forced = (await proxy.call("GET", "c/up/forced")).headers
    assert (forced["Content-Type"], forced["Content-Encoding"]) == ("text/css", "br")


@pytest.mark.parametrize(("redirect", "start"), [("https://a.org/done", "?"), ("https://a.org/?x=%20y", "&")])
async def test_redirects(proxy: Proxy, redirect: str, start: str) -> None:
    await prepare(proxy)
    answer = await submit(proxy, signed(redirect=redirect), ("f", b"x", ""))
    target = f"{redirect}{start}status=201&message="
    assert (answer.status, answer.headers["Location"]) == (303, target)
    assert target.replace("&", "&amp;").encode() in answer.body
    answer = await submit(proxy, signed(redirect=redirect, max_file_count="1"), ("f", b"x", ""), ("g", b"x", ""))
    assert answer.headers["Location"] == f"{redirect}{start}status=400&message=max%20file%20count%20exceeded"
    answer = await submit(proxy, signed("missing/", redirect=redirect), ("f", b"x", ""), path="missing/")
    assert answer.headers["Location"] == f"{redirect}{start}status=404&message="
    answer = await submit(proxy, signed(redirect=redirect))
    assert answer.headers["Location"] == f"{redirect}{start}status=400&message=no%20files%20to%20process"


async def test_a_redirect_can_not_inject_headers_or_markup(proxy: Proxy) -> None:
    await prepare(proxy)
    redirect = 'https://a.org/\r\nSet-Cookie: x=y\r\n\r\n"><script>\u00e9'
    answer = await submit(proxy, signed(redirect=redirect), ("f", b"x", ""))
    assert answer.status == 303
    assert "Set-Cookie" not in answer.headers
    assert "\r" not in answer.headers["Location"]
    assert "%0D%0ASet-Cookie:%20x=y" in answer.headers["Location"]
    assert b"<script>" not in answer.body


async def test_nobody_is_redirected_by_a_form_that_is_not_signed(proxy: Proxy) -> None:
    await prepare(proxy)
    fields = signed() | {"redirect": "https://evil.org"}
    for form in (fields, signed(key="other", redirect="https://evil.org"), {"redirect": "https://evil.org"}):
        answer = await submit(proxy, form)
        assert answer.status == 401
        assert "Location" not in answer.headers
    answer = await submit(proxy, signed(), ("f", b"x", ""), after={"redirect": "https://evil.org"})
    assert answer.status == 201


@pytest.mark.parametrize(
    ("change", "body"),
    [
        ({"signature": "0" * 64}, b"FormPost: Invalid Signature"),
        ({"signature": ""}, b"FormPost: Invalid Signature"),
        ({"signature": "\u00e9"}, b"FormPost: Invalid Signature"),
        ({"max_file_size": "200000"}, b"FormPost: Invalid Signature"),
        ({"max_file_count": "30"}, b"FormPost: Invalid Signature"),
        ({"expires": "99999999999"}, b"FormPost: Invalid Signature"),
        ({"redirect": "https://evil.org"}, b"FormPost: Invalid Signature"),
        ({"expires": "1"}, b"FormPost: Form Expired"),
        ({"expires": ""}, b"FormPost: Form Expired"),
    ],
)
async def test_what_is_not_signed_is_401(proxy: Proxy, change: dict[str, str], body: bytes) -> None:
    await prepare(proxy)
    answer = await submit(proxy, signed() | change, ("f", b"x", ""))
    assert (answer.status, answer.body) == (401, body)
    assert answer.headers["WWW-Authenticate"] == f'Swift realm="{ACCOUNT}"'
    assert await names(proxy) == []


async def test_other_digests_paths_and_accounts_without_keys_are_401(proxy: Proxy) -> None:
    file = ("f", b"x", "")
    assert (await submit(proxy, signed(), file)).status == 401
    await prepare(proxy)
    assert (await submit(proxy, signed(digest="md5"), file)).status == 401
    assert (await submit(proxy, signed("c/other/"), file)).status == 401
    assert (await submit(proxy, signed(""), file, path="")).status == 401


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"max_file_size": "9"}, b"max_file_size exceeded"),
        ({"max_file_size": ""}, b"max_file_size exceeded"),
        ({"max_file_size": "ten"}, b"max_file_size not an integer"),
        ({"max_file_size": "-1"}, b"max_file_size not an integer"),
        ({"max_file_size": "9" * 30}, b"max_file_size not an integer"),
        ({"max_file_count": "x"}, b"max_file_count not an integer"),
        ({"max_file_count": "0"}, b"Max File Count Exceeded"),
        ({"max_file_count": ""}, b"Max File Count Exceeded"),
        ({"expires": "soon"}, b"expires not an integer"),
        ({"x_delete_at": "x"}, b"x_delete_at not an integer: Unix timestamp required."),
        ({"x_delete_after": "x"}, b"x_delete_after not an integer: Number of seconds required."),
        ({"content-type": "text/a\r\nX-Evil: b"}, b"control characters"),
    ],
)
async def test_what_is_wrong_with_a_form_is_400(proxy: Proxy, change: dict[str, str], reason: bytes) -> None:
    await prepare(proxy)
    fields = signed() | change
    order = ("redirect", "max_file_size", "max_file_count", "expires")
    values = [fields.get(name) or ("" if name == "redirect" else "0") for name in order]
    fields["signature"] = signature("\n".join([f"/v1/{ACCOUNT}/c/up/", *values]))
    answer = await submit(proxy, fields, ("f", b"0123456789", ""))
    assert answer.status == 400
    assert b"FormPost: " in answer.body
    assert reason in answer.body
    assert await names(proxy) == []


async def test_files_of_a_form_may_go_by_themselves(proxy: Proxy) -> None:
    await prepare(proxy)
    assert (await submit(proxy, signed() | {"x_delete_after": "50"}, ("a", b"1", ""))).status == 201
    assert (await submit(proxy, signed() | {"x_delete_at": "1070"}, ("b", b"1", ""))).status == 201
    times = [(await proxy.call("HEAD", f"c/up/{name}")).headers["X-Delete-At"] for name in "ab"]
    assert times == ["0000001050", "0000001070"]
    refused = await submit(proxy, signed() | {"x_delete_at": "5"}, ("d", b"1", ""))
    assert (refused.status, b"X-Delete-At in past" in refused.body) == (400, True)


async def test_no_files(proxy: Proxy) -> None:
    await prepare(proxy)
    answer = await submit(proxy, signed())
    assert (answer.status, answer.body) == (400, b"400 Bad Request\r\nFormPost: No Files To Process")
    answer = await submit(proxy, signed(), ("", b"", "Content-Type: application/octet-stream\r\n"))
    assert b"No Files To Process" in answer.body


async def test_files_before_the_one_too_many_stay(proxy: Proxy) -> None:
    await prepare(proxy)
    files = [(str(number), b"x", "") for number in range(4)]
    answer = await submit(proxy, signed(), *files)
    assert (answer.status, answer.body) == (400, b"400 Bad Request\r\nFormPost: Max File Count Exceeded")
    assert await names(proxy) == ["up/0", "up/1", "up/2"]


@pytest.mark.parametrize("size", [SMALL // 2, SMALL * 20])
async def test_a_file_that_is_too_large_leaves_nothing(proxy: Proxy, size: int) -> None:
    await prepare(proxy)
    answer = await submit(
        proxy, signed(max_file_size=str(size)), ("fits", b"x" * size, ""), ("not", b"x" * (size + 1), "")
    )
    assert (answer.status, answer.body) == (400, b"FormPost: max_file_size exceeded")
    assert await names(proxy) == ["up/fits"]


async def test_the_clusters_own_limit(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, limits=LimitsSection(max_file_size=10)) as proxy:
        await prepare(proxy)
        assert (await submit(proxy, signed(), ("f", b"x" * 11, ""))).status == 413
        assert (await submit(proxy, signed(), ("f", b"x" * 10, ""))).status == 201


@pytest.mark.parametrize("cut", [1, 10, 60, 5000])
@pytest.mark.parametrize("size", [5, SMALL * 20])
async def test_a_form_that_breaks_off_stores_nothing(proxy: Proxy, cut: int, size: int) -> None:
    await prepare(proxy)
    data = encode(signed(), [("f", b"x" * size, "")])
    ending = len(f"\r\n--{BOUNDARY}--\r\n")
    sent = data[: -(ending + min(cut, size - 1))]
    async with proxy.client.post(proxy.url("c/up/"), data=sent, headers=TYPE) as response:
        assert response.status == 400
        assert await response.text() == "FormPost: the form ends in the middle of a part, before its closing boundary"
    assert await names(proxy) == []


async def test_a_client_that_goes_away_leaves_nothing(proxy: Proxy) -> None:
    await prepare(proxy)
    data = encode(signed(), [("f", BIG, "")])
    lines = [f"POST /v1/{ACCOUNT}/c/up/ HTTP/1.1", "Host: x", f"Content-Length: {len(data)}"]
    head = "\r\n".join([*lines, f"Content-Type: {TYPE['Content-Type']}"])
    _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(head.encode() + b"\r\n\r\n" + data[:-100])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await names(proxy) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "/abs", "a//b", ".\\x", "?q=1#f", "%2e%2e%2f", "<script>"])
async def test_names_that_look_like_paths_are_only_names(proxy: Proxy, name: str) -> None:
    await prepare(proxy)
    assert (await submit(proxy, signed(), (name, b"x", ""))).status == 201
    assert await names(proxy) == [f"up/{name}"]


@pytest.mark.parametrize(("name", "status"), [("n" * 1022, 400), ("a\0b", 400), ("n" * 1021, 201)])
async def test_names_that_are_too_long_or_none(proxy: Proxy, name: str, status: int) -> None:
    await prepare(proxy)
    assert (await submit(proxy, signed(), (name, b"x", ""))).status == status


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", b"starting boundary"),
        (b"hello", b"starting boundary"),
        (f"--{BOUNDARY}\r\nA: {'b' * 9000}\r\n\r\n".encode(), b"longer than 8192"),
        (encode({f"f{n}": "x" for n in range(200)}, []), b"100 fields"),
        (encode({}, []).replace(b"--\r\n", b"\r\n\r\n\r\n") * 200, b"100 fields"),
        (encode({"a": "x" * (1 << 20)}, [("f", b"x", "")]), b"larger than 1048576 bytes"),
        (encode({}, []).replace(b"--\r\n", b"\r\n\xff: x\r\n\r\nx"), b"UTF-8"),
    ],
)
async def test_what_is_no_form_is_400(proxy: Proxy, data: bytes, reason: bytes) -> None:
    async with proxy.client.post(proxy.url("c/up/"), data=BytesIO(data), headers=TYPE) as response:
        assert response.status == 400
        body = await response.read()
    assert body.startswith(b"FormPost: ")
    assert reason in body


async def test_long_fields_are_cut(proxy: Proxy) -> None:
    await prepare(proxy)
    fields = {"padding": "x" * 1_000_000, **signed()}
    assert (await submit(proxy, fields, ("f", b"x", ""))).status == 201


async def test_a_strangers_form_is_refused_before_most_of_it_is_read(proxy: Proxy) -> None:
    """A body of tiny parts without a signature ends at the first part too many, whatever follows."""
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        part = f"--{BOUNDARY}\r\n\r\n\r\n".encode()
        while True:
            read += 65_536
            yield part * (65_536 // len(part))
            await asyncio.sleep(0)

    async with proxy.client.post(proxy.url("c/up/"), data=endless(), headers=TYPE) as response:
        assert (response.status, b"100 fields" in await response.read()) == (400, True)
    assert read < 8 << 20


async def test_nothing_of_a_file_is_read_before_the_signature_is_checked(proxy: Proxy) -> None:
    data = encode(signed(key="wrong"), [("f", b"", "")])
    head = data[: data.rindex(b"\r\n--")]

    async def a_file_without_end() -> AsyncIterator[bytes]:
        yield head
        await asyncio.sleep(3600)

    async with proxy.client.post(proxy.url("c/up/"), data=a_file_without_end(), headers=TYPE) as response:
        assert (response.status, await response.read()) == (401, b"FormPost: Invalid Signature")


async def test_the_browser_may_wait_for_a_go_ahead(proxy: Proxy) -> None:
    await prepare(proxy)
    data = encode(signed(), [("f", b"x", "")])
    async with proxy.client.post(proxy.url("c/up/"), data=data, headers=TYPE, expect100=True) as response:
        assert response.status == 201


async def test_scripts_of_other_sites_may_read_the_answer(proxy: Proxy) -> None:
    await prepare(proxy)
    assert (await proxy.call("POST", "c", {"X-Container-Meta-Access-Control-Allow-Origin": "*"})).status == 204
    headers = {**TYPE, "Origin": "https://a.org"}
    async with proxy.client.post(
        proxy.url("c/up/"), data=encode(signed(), [("f", b"x", "")]), headers=headers
    ) as response:
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (201, "*")


async def test_settings(cluster: MemoryCluster, tmp_path: Directory) -> None:
    async with proxy_of(cluster, tmp_path, formpost=FormPostSection(allowed_digests=("sha512",))) as proxy:
        await prepare(proxy)
        assert (await submit(proxy, signed(digest="sha512"), ("f", b"x", ""))).status == 201
        assert (await submit(proxy, signed(), ("f", b"x", ""))).status == 401
        assert (await (await proxy.client.get("/info")).json())["formpost"] == {"allowed_digests": ["sha512"]}
    async with proxy_of(cluster, tmp_path, formpost=FormPostSection(enabled=False)) as proxy:
        await prepare(proxy)
        answer = await submit(proxy, signed(), ("f", b"x", ""))
        assert (answer.status, b"FormPost" in answer.body) == (401, False)
        assert "formpost" not in await (await proxy.client.get("/info")).json()
