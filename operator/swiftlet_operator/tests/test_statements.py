"""What members tell each other: whose word counts, and what happens to everything else."""

from __future__ import annotations

import base64
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from swiftlet.main.tests.certificates import make_pair
from swiftlet_operator import statements
from swiftlet_operator.members import Access, MemberAway, access_of, read_over_https
from swiftlet_operator.reports import DeviceReport, RingReport
from swiftlet_operator.statements import (
    FORMAT,
    DeviceStateSaid,
    RefusedStatement,
    RingStateSaid,
    Statement,
    essence,
    opened,
    reports_of,
    sealed_statement,
    state_said,
)
from swiftlet_operator.tests.federations import kubeconfig

KEY, OLD, OTHER = b"first key of enough length", b"an older key of enough length", b"another's key of enough length"
SAID = Statement(federation="one", member="west", leader="east", at_s=1000, uses={"account": 3}, busy=False)


def test_a_statement_comes_back_as_it_was_by_any_of_the_keys() -> None:
    assert opened(sealed_statement(SAID, [KEY]), [OLD, KEY]) == SAID
    with pytest.raises(RefusedStatement) as refused:
        opened(sealed_statement(SAID, [OTHER]), [KEY, OLD])
    assert refused.value.reason == "KeysDiffer"


@pytest.mark.parametrize("at", [0, 31, 32, 40, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    data = bytearray(sealed_statement(SAID, [KEY]))
    data[at] ^= 1
    with pytest.raises(RefusedStatement):
        opened(bytes(data), [KEY])


@pytest.mark.parametrize("data", [b"", b"short", b"x" * 100])
def test_what_is_no_statement_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedStatement):
        opened(data, [KEY])


def _signed(packed: bytes) -> bytes:
    return statements._mac(KEY, packed) + packed


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (b"not packed", "StatementUnreadable"),
        (zlib.compress(b"[]"), "StatementUnreadable"),
        (zlib.compress(b'{"member": 1}'), "StatementUnreadable"),
        (zlib.compress(b"x" * (statements.MAX_UNPACKED_BYTES + 1)), "StatementUnreadable"),
        (zlib.compress(SAID.model_copy(update={"format": FORMAT + 1}).model_dump_json().encode()), "StatementTooNew"),
    ],
)
def test_also_what_is_signed_has_to_be_a_statement(packed: bytes, reason: str) -> None:
    with pytest.raises(RefusedStatement) as refused:
        opened(_signed(packed), [KEY])
    assert refused.value.reason == reason


def test_fields_of_a_newer_version_are_ignored() -> None:
    fields = json.loads(SAID.model_dump_json()) | {"mood": "calm"}
    assert opened(_signed(zlib.compress(json.dumps(fields).encode())), [KEY]) == SAID


def test_reports_go_there_and_back() -> None:
    ring = RingReport(held=4, misplaced=0, behind=1, unchecked=0, synced_at_s=50.0, ring_version=7)
    said = state_said(DeviceReport(state="serving", pending=2), DeviceReport(rings={"object-0": ring}))
    found = reports_of([SAID.model_copy(update={"states": {"west-disks-0/d0": said, "west-container-0/db": said}})])

    assert found["west-disks-0"]["object"].devices["d0"].pending == 2
    assert found["west-disks-0"]["replicator"].devices["west-disks-0/d0"].rings["object-0"] == ring
    assert found["west-container-0"]["container"].devices["db"].state == "serving"


def test_only_what_somebody_waits_for_is_worth_a_write() -> None:
    def with_round(**fields: Any) -> Statement:
        said = RingStateSaid(**{"held": 4, "behind": 2, "synced_at_s": 40.0, "ring_version": 1, **fields})
        return SAID.model_copy(update={"states": {"west-disks-0/d0": DeviceStateSaid(rings={"object-0": said})}})

    since = {"object-0": 100.0}
    before = essence(with_round(), since)
    assert essence(with_round(held=5, behind=1, synced_at_s=90.0), since) == before
    assert essence(with_round(behind=0), since) != before
    assert essence(with_round(synced_at_s=100.0), since) != before
    assert essence(with_round(held=0), since) != before
    assert essence(with_round(held=None), since) != before
    assert essence(with_round().model_copy(update={"at_s": 2000}), since) == before
    assert essence(with_round().model_copy(update={"busy": True}), since) != before


def test_of_a_kubeconfig_only_address_authorities_and_token_count() -> None:
    found = access_of(json.loads(kubeconfig("https://east.example.org:6443/", "secret\n", "authority")))
    assert found == Access("https://east.example.org:6443", "secret", "authority")


def _without(path: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *way, last = path.split(".")
        at: Any = document
        for step in way:
            at = at[int(step)] if step.isdigit() else at[step]
        del at[last]

    return change


@pytest.mark.parametrize(
    "change",
    [
        _without("users.0.user.token"),
        _without("clusters.0.cluster.certificate-authority-data"),
        _without("current-context"),
        lambda document: document.update({"current-context": "gone"}),
        lambda document: document["clusters"][0]["cluster"].update({"server": "http://east.example.org"}),
        lambda document: document["clusters"][0]["cluster"].update({"insecure-skip-tls-verify": True}),
        lambda document: document["clusters"][0]["cluster"].update({"certificate-authority-data": "%%"}),
        lambda document: document["users"][0].update({"user": {"exec": {"command": "sh"}}}),
    ],
)
def test_other_kubeconfigs_are_refused(change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(kubeconfig("https://east.example.org"))
    change(document)
    with pytest.raises((ValueError, LookupError)):
        access_of(document)


@asynccontextmanager
async def api_server(tmp_path: Path, answer: Callable[[web.Request], web.StreamResponse]) -> AsyncIterator[Access]:
    """An API server of one page."""
    pair = make_pair(tmp_path, "127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "127.0.0.1.crt", tmp_path / "127.0.0.1.key")

    async def handle(request: web.Request) -> web.StreamResponse:
        return answer(request)

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/data/configmaps/{name}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield Access(f"https://127.0.0.1:{port}", "letmein", pair.cert.decode())
    finally:
        await runner.cleanup()


async def test_a_config_map_is_read_with_the_token(tmp_path: Path) -> None:
    def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer letmein"
        return web.json_response({"name": request.match_info["name"]})

    async with api_server(tmp_path, answer) as access:
        assert await read_over_https(access, "data", "east-federation") == {"name": "east-federation"}
        assert await read_over_https(access, "elsewhere", "east-federation") is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: web.Response(status=401), "Forbidden"),
        (lambda _: web.Response(status=403), "Forbidden"),
        (lambda _: web.Response(status=500), "Unreachable"),
        (lambda _: web.Response(status=302, headers={"Location": "https://127.0.0.1:1/"}), "Unreachable"),
        (lambda _: web.Response(text="no JSON"), "Unreachable"),
        (lambda _: web.Response(text="[" * 100_000), "Unreachable"),
        (lambda _: web.json_response([1]), "Unreachable"),
        (lambda _: web.Response(body=b" " * (5 * 1024 * 1024)), "Unreachable"),
    ],
)
async def test_other_answers_say_why_nothing_was_heard(
    tmp_path: Path, answer: Callable[[web.Request], web.StreamResponse], reason: str
) -> None:
    async with api_server(tmp_path, answer) as access:
        with pytest.raises(MemberAway) as away:
            await read_over_https(access, "data", "east-federation")
    assert away.value.reason == reason


async def test_a_server_with_other_authorities_gets_no_token(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({})

    (tmp_path / "other").mkdir()
    other = make_pair(tmp_path / "other", "127.0.0.1")
    async with api_server(tmp_path, answer) as access:
        stranger = Access(access.server, access.token, other.cert.decode())
        with pytest.raises(MemberAway, match="can't be asked"):
            await read_over_https(stranger, "data", "east-federation")
    assert not asked


def test_kubeconfigs_of_tests_are_base64_inside() -> None:
    document = json.loads(kubeconfig("https://east", authorities="x"))
    assert base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"]) == b"x"
