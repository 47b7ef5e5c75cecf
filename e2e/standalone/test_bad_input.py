"""Bad input: the right status, a reason that a person can act on, and nothing stored.

Every row is sent as raw bytes to a running cluster; after each one the container holds exactly what it held before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from e2e.standalone.cluster import Cluster
from e2e.standalone.wire import Client, exchange, raw

LONG_LINE = "x" * 20_000


@dataclass(frozen=True)
class Row:
    """One bad request. `{base}` in the target is the account's path, `{token}` in a header the valid token."""

    name: str
    status: int | tuple[int, ...]
    reason: str
    method: str = "PUT"
    target: str = "{base}/bad/new"
    headers: dict[str, str | bytes] = field(default_factory=dict)
    body: bytes = b"data"
    length: bool = True
    token: bool = True
    hang_up: bool = False


def meta(name: str, value: str | bytes) -> dict[str, str | bytes]:
    return {f"X-Object-Meta-{name}": value}


ROWS = [
    # names
    Row("object name over 1024 bytes", 400, "Object name length of 1025", target="{base}/bad/" + "o" * 1025),
    Row("object name over 1024 bytes in UTF-8", 400, "Object name length", target="{base}/bad/" + "%C3%A9" * 513),
    Row("container name over 256 bytes", 400, "Container name length of 257", target="{base}/" + "c" * 257),
    Row("account name over 256 bytes", 400, "Account name length", target="/v1/" + "a" * 257 + "/c"),
    Row("object name not UTF-8", 412, "Invalid UTF8 or contains NULL", target="{base}/bad/%ff%fe"),
    Row("container name not UTF-8", 412, "Invalid UTF8 or contains NULL", target="{base}/%c3%28"),
    Row("overlong UTF-8 slash", 412, "Invalid UTF8 or contains NULL", target="{base}/bad/%c0%af"),
    Row("UTF-16 surrogate", 412, "Invalid UTF8 or contains NULL", target="{base}/bad/%ed%a0%80"),
    Row("NUL in the name", 412, "NUL", target="{base}/bad/a%00b"),
    Row("broken percent escape", 412, "percent-encoded", target="{base}/bad/100%zz"),
    Row("percent at the end", 412, "percent-encoded", target="{base}/bad/100%"),
    Row("slash in a container name", 412, "'/'", target="{base}/a%2Fb"),
    Row("empty container name", 404, "the container in the path has no name", target="{base}//o"),
    Row("no account", 412, "Bad URL", target="/v1/"),
    Row("nothing behind the version", 412, "Bad URL", target="/v1"),
    Row("unknown version", 404, "/v1/ACCOUNT", target="/v2/AUTH_test/c"),
    Row("dots instead of a version", 404, "/v1/ACCOUNT", target="/../v1/AUTH_test/c"),
    # metadata
    Row("metadata name over 128", 400, "Metadata name too long", headers=meta("n" * 129, "v")),
    Row("metadata value over 256", 400, "Metadata value longer than 256", headers=meta("n", "v" * 257)),
    Row("more than 90 items", 400, "Too many metadata items", headers={f"X-Object-Meta-{n}": "v" for n in range(91)}),
    Row(
        "over 4096 bytes of metadata",
        400,
        "Total metadata too large",
        headers={f"X-Object-Meta-{n:02}": "v" * 250 for n in range(17)},
    ),
    Row("empty metadata name", 400, "name cannot be empty", headers=meta("", "v")),
    Row("metadata value not UTF-8", 400, "Metadata must be valid UTF-8", headers=meta("n", b"\xff\xfe")),
    Row("content type not UTF-8", 400, "not valid UTF-8", headers={"Content-Type": b"text/\xff"}),
    Row(
        "container metadata value over 256",
        400,
        "longer than 256",
        target="{base}/newc",
        headers={"X-Container-Meta-A": "v" * 257},
        body=b"",
    ),
    Row(
        "account metadata value over 256",
        400,
        "longer than 256",
        method="POST",
        target="{base}",
        headers={"X-Account-Meta-A": "v" * 257},
        body=b"",
    ),
    # lengths and bodies
    Row("no length", 411, "Missing Content-Length", length=False, body=b""),
    Row("negative length", 400, "", headers={"Content-Length": "-1"}, length=False),
    Row("length is no number", 400, "", headers={"Content-Length": "four"}, length=False),
    Row("length with a sign", 400, "", headers={"Content-Length": "+4"}, length=False),
    Row(
        "length and chunked at once",
        400,
        "",
        headers={"Content-Length": "4", "Transfer-Encoding": "chunked"},
        length=False,
        body=b"0\r\n\r\n",
    ),
    Row("object over 5 GiB", 413, "too large", headers={"Content-Length": "5368709123"}, length=False),
    Row("length beyond 64 bits", (400, 413), "", headers={"Content-Length": "9" * 40}, length=False),
    Row(
        "body shorter than announced", (0, 400, 499), "", headers={"Content-Length": "1000"}, length=False, hang_up=True
    ),
    Row(
        "large body shorter than announced",
        (0, 400, 499),
        "",
        headers={"Content-Length": "9000000"},
        length=False,
        body=b"x" * 3_000_000,
        hang_up=True,
    ),
    Row(
        "chunked body without its end",
        (0, 400, 499),
        "",
        headers={"Transfer-Encoding": "chunked"},
        length=False,
        body=b"4\r\ndata\r\n",
        hang_up=True,
    ),
    Row(
        "chunk size is no number",
        400,
        "",
        headers={"Transfer-Encoding": "chunked"},
        length=False,
        body=b"zz\r\ndata\r\n0\r\n\r\n",
    ),
    Row("unknown transfer encoding", (400, 501), "", headers={"Transfer-Encoding": "gzip"}, length=False),
    Row("wrong ETag", 422, "the MD5 of the body is", headers={"ETag": "d41d8cd98f00b204e9800998ecf8427e"}),
    Row("ETag that is no MD5", 422, "the MD5 of the body is", headers={"ETag": "nonsense"}),
    Row(
        "wrong ETag of a streamed object",
        422,
        "the MD5 of the body is",
        headers={"ETag": "0" * 32},
        body=b"x" * 2_000_000,
    ),
    # methods and headers
    Row("unknown method on an object", (400, 405), "", method="FROB"),
    Row("unknown method on a container", 405, "not allowed", method="PATCH", target="{base}/bad"),
    Row("unknown method on an account", 405, "not allowed", method="TRACE", target="{base}", body=b""),
    Row("copy to nowhere", 412, "Destination", method="COPY", target="{base}/bad/keep", body=b""),
    Row("copy to a container", 412, "Destination", method="COPY", headers={"Destination": "bad"}, body=b""),
    Row("copy of nothing", 404, "does not exist", method="COPY", headers={"Destination": "bad/x"}, body=b""),
    Row("copy with a body", 400, "zero byte body", headers={"X-Copy-From": "bad/keep"}),
    Row("copy from a URL", 412, "X-Copy-From", headers={"X-Copy-From": "http:"}, body=b""),
    Row(
        "copy from another account",
        403,
        "no access",
        headers={"X-Copy-From": "a/b", "X-Copy-From-Account": "x"},
        body=b"",
    ),
    Row("manifest that is no JSON", 400, "valid JSON", target="{base}/bad/new?multipart-manifest=put"),
    Row(
        "manifest of nothing",
        400,
        "404 Not Found",
        target="{base}/bad/new?multipart-manifest=put",
        body=b'[{"path":"a/b"}]',
    ),
    Row("unknown kind of manifest", 400, "multipart-manifest", target="{base}/bad/new?multipart-manifest=post"),
    Row("forged large object", 400, "reserved", headers={"X-Static-Large-Object": "True"}),
    Row("forged size in the content type", 400, "swift_*", headers={"Content-Type": "a/b;swift_bytes=1"}),
    Row("malformed dynamic manifest", 400, "X-Object-Manifest", headers={"X-Object-Manifest": "a"}),
    Row("expiry in the past", 400, "X-Delete-After in past", headers={"X-Delete-After": "-5"}),
    Row("expiry that is no number", 400, "Non-integer X-Delete-At", headers={"X-Delete-At": "soon"}),
    Row(
        "container ACL without a host",
        400,
        "No host/domain value",
        target="{base}/bad",
        method="POST",
        headers={"X-Container-Read": ".r:"},
        body=b"",
    ),
    Row("header line over the limit", (400, 431), "", headers=meta("n", LONG_LINE)),
    Row("request line over the limit", (400, 414), "", target="{base}/bad/" + LONG_LINE),
    Row("space in a header's name", 400, "", headers={"X-Object Meta": "v"}),
    Row("bare CR in a header", 400, "", headers=meta("n", b"a\rX-Injected: b")),
    Row("folded header", (400, 201), "", headers=meta("n", b"a\x00b")),
    Row("unknown expectation", 417, "100-continue", headers={"Expect": "the unexpected"}),
    Row("If-None-Match with an entity tag", 400, "If-None-Match only supports *", headers={"If-None-Match": "abc"}),
    Row("If-None-Match * where something is", 412, "exists", target="{base}/bad/keep", headers={"If-None-Match": "*"}),
    Row(
        "unknown policy",
        400,
        "Invalid X-Storage-Policy 'gold'",
        target="{base}/newc",
        headers={"X-Storage-Policy": "gold"},
        body=b"",
    ),
    # listings and ranges
    Row(
        "limit over the maximum", 412, "Maximum limit is 10000", method="GET", target="{base}/bad?limit=10001", body=b""
    ),
    Row("query not UTF-8", 400, "not valid UTF-8", method="GET", target="{base}/bad?prefix=%ff", body=b""),
    Row(
        "no acceptable format",
        406,
        "listings are available as",
        method="GET",
        target="{base}/bad",
        headers={"Accept": "image/png"},
        body=b"",
    ),
    Row(
        "range beyond the end",
        416,
        "4 bytes",
        method="GET",
        target="{base}/bad/keep",
        headers={"Range": "bytes=4-"},
        body=b"",
    ),
    Row(
        "suffix of nothing",
        416,
        "4 bytes",
        method="GET",
        target="{base}/bad/keep",
        headers={"Range": "bytes=-0"},
        body=b"",
    ),
    Row(
        "a hundred ranges",
        416,
        "4 bytes",
        method="GET",
        target="{base}/bad/keep",
        headers={"Range": "bytes=" + ",".join(["0-0"] * 100)},
        body=b"",
    ),
    # who is asking
    Row("no token", 401, "X-Auth-Token", token=False),
    Row("garbage for a token", 401, "malformed", token=False, headers={"X-Auth-Token": "garbage"}),
    Row("token with a changed signature", 401, "token", headers={"X-Auth-Token": "{token}x"}, token=False),
    Row("token of 5000 characters", (400, 401), "", token=False, headers={"X-Auth-Token": "AUTH_tk" + "A" * 5000}),
    Row("somebody else's account", 403, "no access", target="/v1/AUTH_other/c", body=b""),
    Row("creating accounts without the role", 403, "reseller_admin", target="{base}", body=b""),
    Row(
        "login without a key",
        401,
        "X-Auth-Key",
        method="GET",
        target="/auth/v1.0",
        headers={"X-Auth-User": "test:tester"},
        body=b"",
    ),
    Row(
        "login with a wrong key",
        401,
        "unknown user or wrong key",
        method="GET",
        target="/auth/v1.0",
        headers={"X-Auth-User": "test:tester", "X-Auth-Key": "no"},
        body=b"",
    ),
    Row("posting to the token endpoint", 405, "not allowed", method="POST", target="/auth/v1.0", body=b""),
    # what is not there
    Row("object into a missing container", 404, "create it first", target="{base}/nowhere/o"),
    Row("metadata for a missing object", 404, "does not exist", method="POST", target="{base}/bad/missing", body=b""),
    Row("deleting a missing object", 404, "does not exist", method="DELETE", target="{base}/bad/missing", body=b""),
    Row("deleting a container with objects", 409, "", method="DELETE", target="{base}/bad", body=b""),
]


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    """A container `bad` with one object `keep`."""
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    assert client.call("PUT", "bad").status in {201, 202}
    assert client.call("PUT", "bad/keep", body=b"keep").status == 201
    yield client
    client.call("DELETE", "bad/keep")
    client.call("DELETE", "bad")


def snapshot(client: Client) -> object:
    """Everything that a bad request could have changed."""
    containers = [row["name"] for row in client.call("GET", query="format=json").json()]
    info = client.call("HEAD", "bad").headers
    meta_items = {k: v for k, v in info.items() if k.startswith("X-Container-Meta-")}
    account = client.call("HEAD").headers
    account_items = {k: v for k, v in account.items() if k.startswith("X-Account-Meta-")}
    kept = client.call("GET", "bad/keep").body
    return containers, client.call("GET", "bad", query="format=json").json(), meta_items, account_items, kept


def _fill(client: Client) -> Callable[[str], str]:
    return lambda text: text.replace("{base}", client.base).replace("{token}", client.token)


def test_the_table_is_long_enough() -> None:
    assert len(ROWS) >= 40
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_bad_input(client: Client, row: Row) -> None:
    before = snapshot(client)
    fill = _fill(client)
    headers = {name: fill(v) if isinstance(v, str) else v for name, v in row.headers.items()}
    if row.token:
        headers["X-Auth-Token"] = client.token
    request = raw(row.method, fill(row.target), headers, row.body, length=row.length)
    answer = exchange(client.endpoint, request, hang_up=row.hang_up)
    expected = row.status if isinstance(row.status, tuple) else (row.status,)
    assert answer.status in expected, answer
    assert row.reason in answer.text
    assert "Traceback" not in answer.text
    if answer.status:
        assert answer.text.strip(), "an error without a reason"
    assert snapshot(client) == before


def test_two_content_lengths(client: Client) -> None:
    before = snapshot(client)
    request = raw(
        "PUT", client.base + "/bad/new", {"X-Auth-Token": client.token, "Content-Length": "4"}, b"data", length=False
    )
    request = request.replace(b"Content-Length: 4", b"Content-Length: 4\r\nContent-Length: 5")
    assert exchange(client.endpoint, request).status == 400
    assert snapshot(client) == before


@pytest.mark.parametrize(
    "garbage", [b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"PUT / HTTP/9.9\r\n\r\n", b"\x00" * 100]
)
def test_not_http_at_all(client: Client, garbage: bytes) -> None:
    assert exchange(client.endpoint, garbage, hang_up=True).status in {0, 400}
    assert client.call("HEAD").status == 204


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../../../etc/passwd",
        ".",
        "a/../b",
        "a//b",
        "/leading",
        "trailing/",
        "%2e%2e",
        "con",
        "a b+c&d=e?f#g",
        "é\u4e2d\U0001f600",
        "\n\t",
        "'\"<>&",
        "-rf",
        "~",
        "x" * 1024,
    ],
)
def test_path_tricks_are_only_names(client: Client, name: str) -> None:
    """Names that look like paths are stored under exactly that name and touch nothing else."""
    body = name.encode()
    assert client.call("PUT", f"bad/{name}", body=body).status == 201
    try:
        assert client.call("GET", f"bad/{name}").body == body
        listed = [row["name"] for row in client.call("GET", "bad", query="format=json").json()]
        assert sorted(listed) == sorted(["keep", name])
    finally:
        assert client.call("DELETE", f"bad/{name}").status == 204
