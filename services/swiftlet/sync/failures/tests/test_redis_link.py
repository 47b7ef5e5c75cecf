"""The way to a real Redis: passwords and certificates that are wrong, change, and are put right while observers run."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from swiftlet.ring.model import Device
from swiftlet.sync.failures.neighbours import Neighbours, News, Notice, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.redis_link import Problem, RedisOptions, problem_of
from swiftlet.sync.failures.redis_table import NOTICES, Notices, RedisTable
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.failures.tests.redis_server import PASSWORD, RedisServer

OTHER = "another password of the tests"
NODES = [Device(n, f"d{n}", f"h{n}", 6200, "d", "r", f"z{n}", f"n{n}", 1.0) for n in range(3)]


@contextlib.asynccontextmanager
async def table(
    url: str, number: int = 0, *, password: Path | None = None, ca: Path | None = None, certificate: Path | None = None
) -> AsyncIterator[RedisTable]:
    """The table of one observer, which runs."""

    async def probe(asked: Device) -> bool:
        await asyncio.sleep(0)
        return True

    me = Observer(node_of(NODES[number]), f"n{number}")
    notices = Notices()
    view = Neighbours(me, FailureTable(3, 60.0), probe, retry_s=0.1, tell=notices.tell)
    view.know(0, NODES)
    made = RedisTable(RedisOptions(url, password, 1.0, 1.0, 0.2, ca, certificate), "test", view, notices)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=10)


async def until_up(*tables: RedisTable) -> None:
    async with asyncio.timeout(15):
        while not all(one.is_up for one in tables):  # noqa: ASYNC110 - the server is another process
            await asyncio.sleep(0.01)


async def until_reason(reason: str, *tables: RedisTable) -> None:
    async with asyncio.timeout(15):
        while {one.problem.reason if one.problem else None for one in tables} != {reason}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def message_of(one: RedisTable) -> str:
    assert one.problem is not None
    return one.problem.message


async def passes(server: RedisServer, speaker: RedisTable, *arguments: str) -> None:
    """A notice goes from one observer through Redis to all who listen."""
    received = NOTICES.labels("received", News.WELL.value)._value
    async with asyncio.timeout(15):
        while server.command(*arguments, "PUBSUB", "NUMSUB", "swiftlet:test:1:notices").split()[-1] != "2":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        before = received.get()
        speaker.notices.tell(Notice(News.WELL, node_of(NODES[2])))
        while received.get() < before + 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path, PASSWORD)
    made.start()
    yield made
    made.kill()


async def test_a_password_that_changes_with_the_server_is_taken_without_a_restart(
    server: RedisServer, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    async with table(server.url, 0, password=file) as one, table(server.url, 1, password=file) as two:
        await until_up(one, two)
        await passes(server, one, "--no-auth-warning", "-a", PASSWORD)
        server.kill()
        await until_reason("Unreachable", one, two)
        server.password = OTHER
        server.start()
        await until_reason("AuthenticationFailed", one, two)
        assert "password" in message_of(one)
        assert PASSWORD not in message_of(one)
        file.write_text(OTHER)
        await until_up(one, two)
        await passes(server, two, "--no-auth-warning", "-a", OTHER)


async def test_what_fails_is_told_apart(server: RedisServer, tmp_path: Path) -> None:
    async with table(server.url, password=tmp_path / "absent") as one:
        await until_reason("FileUnreadable", one)
        assert str(tmp_path / "absent") in message_of(one)
    async with table(server.url) as one:
        assert one.problem is None
        assert not one.is_up, "nobody has asked yet"
        await until_reason("AuthenticationFailed", one)


async def test_a_redis_in_protected_mode_is_named(tmp_path: Path) -> None:
    """It answers its own host alone, so what it says to others is played back."""

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-DENIED Redis is running in protected mode because protected mode is enabled.\r\n")
        writer.close()

    denying = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = denying.sockets[0].getsockname()[1]
    async with denying, table(f"redis://127.0.0.1:{port}") as one:
        await until_reason("Refused", one)
        assert "protected mode" in message_of(one)


def issued(directory: Path, name: str, *, host: str = "IP:127.0.0.1") -> tuple[Path, Path, Path]:
    """Files of a certificate, its key and the authority that it comes from."""
    directory.mkdir(exist_ok=True)
    certificate, key, ca = (directory / f"{name}.{kind}" for kind in ("crt", "key", "ca"))
    usual = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    usual += ["-days", "2"]
    ca_key = directory / f"{name}.ca.key"
    run = ["-subj", f"/CN=authority of {name}", "-keyout", str(ca_key), "-out", str(ca)]
    subprocess.run([*usual, *run], check=True, capture_output=True)
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={host}", "-addext", "basicConstraints=CA:FALSE"]
    names += ["-CA", str(ca), "-CAkey", str(ca_key), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*usual, *names], check=True, capture_output=True)
    return certificate, key, ca


async def test_tls_is_verified_by_authority_and_host(tmp_path: Path) -> None:
    certificate, key, ca = issued(tmp_path, "redis")
    _, _, stranger = issued(tmp_path, "stranger")
    server = RedisServer(tmp_path, PASSWORD, (certificate, key))
    password, trusted = tmp_path / "password", tmp_path / "trusted"
    password.write_text(PASSWORD)
    trusted.write_bytes(stranger.read_bytes())
    server.start()
    try:
        async with table(server.url, password=password, ca=trusted) as one:
            await until_reason("TLSFailed", one)
            trusted.write_text("no certificate")
            await until_reason("FileUnreadable", one)
            trusted.write_bytes(ca.read_bytes())
            await until_up(one)
        async with table(server.url.replace("127.0.0.1", "localhost"), password=password, ca=trusted) as one:
            await until_reason("TLSFailed", one)
    finally:
        server.kill()


async def test_one_certificate_is_trusted_alone_whatever_host_it_is_for_and_may_change(tmp_path: Path) -> None:
    certificate, key, ca = issued(tmp_path, "first", host="DNS:objects.example.org")
    # What a TLS Secret holds: the certificate, then those above it, which are not to be trusted for others.
    chain = tmp_path / "chain"
    chain.write_bytes(certificate.read_bytes() + ca.read_bytes())
    known = tmp_path / "known"
    known.write_bytes(chain.read_bytes())
    server = RedisServer(tmp_path, None, (chain, key))
    server.start()
    try:
        async with table(server.url, certificate=known) as one:
            await until_up(one)
            server.kill()
            second, second_key, _ = issued(tmp_path, "second", host="DNS:objects.example.org")
            chain.write_bytes(second.read_bytes())
            key.write_bytes(second_key.read_bytes())
            server.start()
            await until_reason("TLSFailed", one)
            known.write_bytes(second.read_bytes())
            await until_up(one)
            # Signed by the very authority that stands behind the first certificate.
            known.write_bytes(certificate.read_bytes() + second.read_bytes())
            server.kill()
            server.start()
            await until_reason("TLSFailed", one)
    finally:
        server.kill()


def test_messages_are_short_and_every_error_has_a_reason() -> None:
    assert problem_of(RedisConnectionError("x" * 1000)) == Problem("Unreachable", "x" * 300 + "...")
    assert problem_of(TimeoutError()) == Problem("Unreachable", "TimeoutError()")
    assert problem_of(ValueError("odd")) == Problem("AnswerUnusable", "odd")
