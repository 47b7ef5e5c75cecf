"""TLS on the API's port: the certificate is changed under open connections, and a damaged one is not taken."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from swiftlet.errors import SettingsError
from swiftlet.main.certificates import FAILURES, Certificates
from swiftlet.main.reloading import Reloading
from swiftlet.main.tests.certificates import Pair, PairFiles, make_pair
from swiftlet.web.app import create_base_app
from swiftlet.web.serve import ServeOptions, StopRequest, serve
from swiftlet.web.sockets import listen


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    """Two pairs of different names."""
    directory = tmp_path_factory.mktemp("pairs")
    return make_pair(directory, "first"), make_pair(directory, "second")


@asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[int]:
    """An application behind TLS; its port."""
    sock, asked = listen("127.0.0.1", 0), StopRequest()

    async def scheme(request: web.Request) -> web.Response:
        return web.Response(text=request.scheme)

    app = create_base_app("small", trust_request_ids=False)
    app.router.add_get("/scheme", scheme)
    task = asyncio.create_task(serve(app, [sock], ServeOptions(tls=context, drain_s=1.0), asked))
    yield sock.getsockname()[1]
    asked.again()
    await task


def trusting(*pairs: Pair, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """A client that trusts these pairs and nothing else."""
    context = ssl.create_default_context(cadata="".join(pair.cert.decode() for pair in pairs))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = newest
    return context


async def name_at(port: int, context: ssl.SSLContext, server_name: str = "localhost") -> str:
    """The subject of the certificate that a new connection is given."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=server_name)
    subject = dict(item[0] for item in writer.get_extra_info("peercert")["subject"])
    writer.close()
    await writer.wait_closed()
    return str(subject["commonName"])


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_new_connections_get_the_new_certificate_and_open_ones_stay(
    tmp_path: Path, pairs: tuple[Pair, Pair], newest: ssl.TLSVersion
) -> None:
    first, second = pairs
    files = PairFiles(tmp_path, first)
    certificates = Certificates(files.cert, files.key)
    client = trusting(first, second, newest=newest)

    async with serving(certificates.context) as port, aiohttp.ClientSession() as session:
        url = f"https://localhost:{port}/scheme"
        async with session.get(url, ssl=client) as answer:
            assert await answer.text() == "https"
        assert await name_at(port, client) == "first"

        files.put(second.cert, second.key)
        assert certificates.reload()
        assert not certificates.reload()
        assert await name_at(port, client) == "second"
        # Without a host name, as who asks by address does it.
        assert await name_at(port, client, "127.0.0.1") == "second"
        async with session.get(url, ssl=client) as answer:
            assert await answer.text() == "https"


@pytest.mark.parametrize("damage", ["garbage", "empty", "mixed", "gone"])
async def test_a_damaged_pair_leaves_the_last_good_one_in_use(
    tmp_path: Path, pairs: tuple[Pair, Pair], damage: str
) -> None:
    first, second = pairs
    files = PairFiles(tmp_path, first)
    certificates = Certificates(files.cert, files.key)
    reloading = Reloading("TLS certificate", certificates.reload, FAILURES)
    before = FAILURES._value.get()

    damaged = {"garbage": (b"no PEM", first.key), "empty": (b"", b""), "mixed": (second.cert, first.key)}
    if damage == "gone":
        files.cert.unlink()
    else:
        files.put(*damaged[damage])
    async with serving(certificates.context) as port:
        for _ in range(3):
            assert not reloading.look()
            assert await name_at(port, trusting(first, second)) == "first"
        assert FAILURES._value.get() == before + 1

        files.put(second.cert, second.key)
        assert reloading.look()
        assert await name_at(port, trusting(first, second)) == "second"


async def test_who_speaks_no_tls_or_an_old_version_is_refused_and_others_are_served(
    tmp_path: Path, pairs: tuple[Pair, Pair]
) -> None:
    files = PairFiles(tmp_path, pairs[0])
    certificates = Certificates(files.cert, files.key)
    assert certificates.context.minimum_version == ssl.TLSVersion.TLSv1_2

    async with serving(certificates.context) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /scheme HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"https" not in await reader.read()
        writer.close()
        with socket.create_connection(("127.0.0.1", port)):
            assert await name_at(port, trusting(pairs[0])) == "first"


@pytest.mark.parametrize(("cert", "key"), [(b"", b""), (b"no PEM", b"no PEM")])
def test_without_a_good_pair_nothing_starts(tmp_path: Path, cert: bytes, key: bytes) -> None:
    files = PairFiles(tmp_path, Pair(cert, key))

    with pytest.raises(SettingsError, match="are not a certificate and its key in PEM format"):
        Certificates(files.cert, files.key)
    with pytest.raises(SettingsError, match="No such file"):
        Certificates(files.cert, tmp_path / "nowhere")


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path, pairs: tuple[Pair, Pair]) -> None:
    locked = subprocess.run(
        ["openssl", "pkey", "-aes256", "-passout", "pass:secret"],
        input=pairs[0].key,
        capture_output=True,
        check=True,
    ).stdout
    files = PairFiles(tmp_path, Pair(pairs[0].cert, locked))

    with pytest.raises(SettingsError, match="is encrypted"):
        Certificates(files.cert, files.key)


def test_a_pair_that_comes_while_another_is_read_is_used_whole_and_read_once(
    tmp_path: Path, pairs: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pairs
    files = PairFiles(tmp_path, first)
    certificates = Certificates(files.cert, files.key)
    files.put(first.cert, first.key)
    read, waiting = certificates._read_pem, [second]

    def late() -> tuple[bytes, bytes]:
        if waiting:
            pair = waiting.pop()
            files.put(pair.cert, pair.key)
        return read()

    monkeypatch.setattr(certificates, "_read_pem", late)
    assert certificates.reload()
    assert certificates.pem == (second.cert, second.key)
    assert not certificates.reload()
