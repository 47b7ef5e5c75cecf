"""The HTTP surface under requests made from its description: no 5xx, no hang, no status that is not described.

`make fuzz MINUTES=10` runs it for longer than CI does. A failure prints the request in its smallest form; the same
seed (`FUZZ_SEED`) makes the same requests. By design are: 501 for a parameter that is marked so in the description;
503 for what can be repeated, if a repetition is not answered with it. That is all.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.fuzz import NASTY, Request, requests, send
from e2e.standalone.wire import Answer, Client
from swiftlet.api.tests.openapi import document, operations

SECONDS = float(os.environ.get("FUZZ_SECONDS", "4"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
ANSWER_WITHIN_S = 60.0
BATCH = 300
"""Examples between two renewals of what is stored."""
LEAST = 300
"""Requests from the description, however slow the machine is."""
SEEN = {200, 201, 204, 400, 401}
"""Answers that some of them have to be given: it goes on until then, for so long at the most."""
SEEN_WITHIN_S = 200.0
ATTEMPTS = 4
ANYWHERE = frozenset({0, 400, 401, 403, 404, 405, 408, 411, 412, 413, 414, 417, 429, 431, 498, 499})
"""What a malformed request may be told wherever it goes; 0: the connection was closed."""
OPERATIONS = list(operations(document()))
DATA = [operation for operation in OPERATIONS if operation.path.startswith("/v1/")]
"""Asked for three times as often as all together."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A store of its own: requests may leave anything in it."""
    running = start_cluster(tmp_path_factory.mktemp("fuzz"))
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint, cluster.user, cluster.key)


def renew(client: Client) -> None:
    """Create the objects that the examples in the description name."""
    limits = {f"X-Remove-Container-Meta-Quota-{what}": "x" for what in ("Bytes", "Count")}
    for name in ("fuzz", "versioned", "site", "archive"):
        assert client.call("PUT", name, limits).status in {201, 202}
    assert (
        client.call("POST", "site", {"X-Container-Meta-Web-Listings": "true", "X-Container-Read": ".r:*"}).status == 204
    )
    for container in ("fuzz", "site"):
        for name, headers, body, query in (
            ("o", {}, b"abc", ""),
            ("a/b", {}, b"abc", ""),
            ("dlo", {"X-Object-Manifest": f"{container}/a"}, b"", ""),
            ("link", {"X-Symlink-Target": f"{container}/o"}, b"", ""),
            ("slo", {}, json.dumps([{"path": f"/{container}/o"}] * 2).encode(), "multipart-manifest=put"),
        ):
            answer = client.call("PUT", f"{container}/{name}", headers, body, query)
            assert answer.status in {201, 413}, answer


def ask(client: Client, request: Request) -> Answer:
    """The answer; what may be repeated is."""
    raw, hang_up = request.raw(client.token), not request.whole
    for attempt in range(ATTEMPTS):
        answer = send(client.endpoint, raw, request.method, ANSWER_WITHIN_S, hang_up=hang_up)
        assert answer is not None, f"no answer in time to {request}"
        if answer.status != 503:
            return answer
        assert "Retry-After" in answer.headers
        time.sleep(attempt)
    raise AssertionError(f"again and again 503 for {request}")


def judge(request: Request, answer: Answer, described: frozenset[int]) -> None:
    """Whether an answer is one that there should be."""
    shown = f"{request} was answered {answer.status} {answer.text[:300]!r}"
    if answer.status == 501:
        assert 501 in request.refused_with, shown
        return
    assert answer.status < 500, shown
    assert answer.status in described | ANYWHERE, f"not described: {shown}"
    assert "Evil" not in answer.headers, shown
    assert "Traceback" not in answer.text, shown


EXAMPLES = settings(
    max_examples=BATCH,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 2 + 300)
def test_requests_from_the_description(cluster: Cluster, client: Client) -> None:
    until = time.monotonic() + SECONDS
    described = {operation.id: operation.statuses for operation in OPERATIONS}
    counts: Counter[int] = Counter()
    number = SEED

    def goes_on() -> bool:
        enough = counts.total() >= LEAST and counts.keys() >= SEEN
        return time.monotonic() < until + (0 if enough else SEEN_WITHIN_S)

    def batch(number: int) -> None:
        @seed(number)
        @EXAMPLES
        @given(st.sampled_from(OPERATIONS + DATA * 3).flatmap(requests))
        def example(request: Request) -> None:
            if goes_on():
                answer = ask(client, request)
                counts[answer.status] += 1
                judge(request, answer, described[request.operation])

        example()

    while goes_on():
        renew(client)
        batch(number)
        number += 1
    print(f"{counts.total()} requests, seeds {SEED} to {number - 1}: {dict(sorted(counts.items()))}")
    assert counts.total() > SECONDS / 2, counts
    assert counts.keys() >= SEEN, counts
    well(cluster, client)


def well(cluster: Cluster, client: Client) -> None:
    """No process has ended or met what it did not expect."""
    assert client.call("HEAD").status == 204
    for name in cluster.services:
        log = cluster.log(name)
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]


LINES = st.one_of(
    st.sampled_from([b"Host: a", b"Host:", b"Host: a\r\nHost: b", b"Transfer-Encoding: chunked", b"Content-Length: 3"]),
    st.sampled_from([b"Content-Length: +3", b"Content-Length: 3, 3", b"Transfer-Encoding: identity", b" folded", b":"]),
    st.sampled_from([b"Connection: upgrade\r\nUpgrade: websocket", b"Upgrade: h2c\r\nHTTP2-Settings: AAM"]),
    st.sampled_from([b"Connection: close, X-Auth-Token", b"Trailer: X-Object-Meta-A", b"TE: trailers", b"A" * 9000]),
    st.sampled_from([b"Expect: 100-continue", b"Range: bytes=0-0", b"X-Auth-Token: {token}", b"X:\0", b"X\t: a"]),
    st.builds(lambda name, value: name + b":" + value, st.binary(max_size=8), st.sampled_from(NASTY)),
)
FIRST = st.builds(
    lambda method, target, version, gap: method + gap + target + gap + version,
    st.sampled_from(
        [b"GET", b"PUT", b"POST", b"COPY", b"CONNECT", b"PRI", b"get", b"", b"\x00", b"G" * 3000, b"TRACE"]
    ),
    st.sampled_from(
        [
            b"{base}/fuzz/raw",
            b"/",
            b"*",
            b"http://a{base}/fuzz/o",
            b"//{base}",
            b"a:1",
            b"\xff",
            b"/%",
            b"/v1/#a?b",
            b"",
        ]
    ),
    st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.1 x", b"", b"SIP/2.0"]),
    st.sampled_from([b" ", b" ", b" ", b"  ", b"\t"]),
)
BODIES = st.sampled_from(
    [
        b"",
        b"abc",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"3;a=b\r\nabc\r\n0\r\nX-A: b\r\n\r\n",
        b"-1\r\n",
        b"fffffffffffffffff\r\n",
        b"0\r\n",
    ]
)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 2 + 300)
def test_shapes_that_no_library_sends(cluster: Cluster, client: Client) -> None:
    """Request lines, headers and bodies put together at random, with any line end, cut off anywhere."""
    renew(client)
    until = time.monotonic() + SECONDS / 4
    ends = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
    number = SEED
    counts: Counter[int] = Counter()

    def batch(number: int) -> None:
        @seed(number)
        @EXAMPLES
        @given(FIRST, st.lists(LINES, max_size=6), ends, BODIES, st.just(0) | st.integers(0, 40))
        def example(first: bytes, lines: list[bytes], end: bytes, body: bytes, cut: int) -> None:
            if time.monotonic() >= until:
                return
            raw = end.join([first, *lines, b"", b""]) + body
            raw = raw.replace(b"{base}", client.base.encode()).replace(b"{token}", client.token.encode())
            raw = raw[: max(1, len(raw) - cut)]
            answer = send(client.endpoint, raw, "GET", ANSWER_WITHIN_S, hang_up=True)
            assert answer is not None, f"no answer to {raw!r}"
            assert answer.status < 500 or answer.status in {503, 505}, (raw, answer)
            counts[answer.status] += 1

        example()

    while time.monotonic() < until:
        batch(number)
        number += 1
    print(f"{counts.total()} shapes, seeds {SEED} to {number - 1}: {dict(sorted(counts.items()))}")
    well(cluster, client)
