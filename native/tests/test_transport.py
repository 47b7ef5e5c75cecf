"""The transport from Python: one call per request, events through one descriptor, memory without copies."""

from __future__ import annotations

import select
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from swiftlet_native import TransportBuffer, TransportChunk, TransportGroup, TransportNode, TransportPeer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

PROBE = 0
WAIT_S = 20.0


def make_node(name: str, directory: Path | None = None, key: bytes = b"secret") -> TransportNode:
    """A node with little memory."""
    return TransportNode(name, "machine", [key], pool_bytes=4 << 20, socket_directory=directory)


def wait(node: TransportNode, token: int, ended: Collection[int] = ()) -> tuple[str, object]:
    """Return the next event under this token.

    Writes whose answers were all taken may be named once more: their last answer came while the others were taken.
    """
    end = time.monotonic() + WAIT_S
    ready = select.poll()
    ready.register(node, select.POLLIN)
    while time.monotonic() < end:
        if ready.poll(1000):
            for got, what, value in node.events():
                if got not in ended:
                    assert got == token
                    return what, value
    raise TimeoutError


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A directory of few characters: a socket's path may not have many."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def connected(sockets: Path | None) -> tuple[TransportNode, TransportNode, TransportPeer]:
    """A server, a client and the server as the client's peer: of the same node, with a directory for sockets."""
    directory, same_node = sockets, sockets is not None
    server, client = make_node("server", directory), make_node("client", directory)
    port = server.listen("127.0.0.1", 0)
    return server, client, client.peer("server", None if same_node else "127.0.0.1", port)


@pytest.mark.parametrize("same_node", [False, True])
def test_a_probe_comes_back_and_is_counted(sockets: Path, same_node: bool) -> None:
    server, client, peer = connected(sockets if same_node else None)
    peer.call(7, PROBE, 5.0, "tx1", b"header", bytearray(b"body"))

    what, value = wait(client, 7)

    assert what == "reply"
    assert isinstance(value, tuple)
    status, header, size, body, whole = value
    assert (status, header, size, body, whole) == (0, b"header", 4, b"body", True)
    (report,) = client.report()
    assert (report["transport"], report["requests"], report["errors"]) == ("same-node" if same_node else "tcp", 1, 0)
    assert [row["peer"] for row in server.report()] == ["client"]


def test_memory_is_waited_for_filled_and_sent() -> None:
    _server, client, peer = connected(None)
    buffers = []
    for token in range(3):
        client.reserve(token, 1 << 20, 5.0)
        what, buffer = wait(client, token)
        assert what == "memory"
        assert isinstance(buffer, TransportBuffer)
        buffers.append(buffer)
    client.reserve(3, 1 << 20, 0.05)
    assert wait(client, 3) == ("memory", None)

    buffers[0].write(2, b"abc")
    with pytest.raises(ValueError, match="outside"):
        buffers[0].write((1 << 20) - 1, b"ab")
    chunk = buffers[0].freeze(5)
    assert isinstance(chunk, TransportChunk)
    assert (len(chunk), memoryview(cast("Buffer", chunk)).readonly) == (5, True)
    with pytest.raises(ValueError, match="frozen"):
        buffers[0].freeze(5)
    assert bytes(cast("Buffer", chunk))[2:] == b"abc"

    upload = peer.upload(9, 1, 5.0, "tx1", b"", None)
    assert upload.send(chunk)
    upload.end(b"footer")
    what, value = wait(client, 9)
    assert what == "failed"  # nobody answers method 1 there
    assert isinstance(value, tuple)
    assert value[0] == "remote"


def test_who_can_not_be_reached_is_told_from_who_is_refused() -> None:
    client = make_node("client")
    client.peer("nobody", None, 0).call(1, PROBE, 5.0, "", b"", b"")
    assert wait(client, 1) == ("failed", ("unreachable", "the peer can't be reached: its address is not known"))

    server = make_node("server", key=b"another")
    peer = client.peer("server", "127.0.0.1", server.listen("127.0.0.1", 0))
    peer.call(2, PROBE, 5.0, "", b"", b"")
    what, value = wait(client, 2)
    assert what == "failed"
    assert "the two sides have no cluster key in common" in str(value)


def test_what_is_over_a_limit_is_refused_at_once() -> None:
    client = make_node("client")
    peer = client.peer("nobody", None, 0)
    with pytest.raises(ValueError, match="larger than the limit"):
        peer.call(1, PROBE, 5.0, "", bytes(65537), b"")
    with pytest.raises(ValueError, match="timeout"):
        peer.call(1, PROBE, 0.0, "", b"", b"")
    with pytest.raises(ValueError, match="1 MiB"):
        client.reserve(1, (1 << 20) + 1, 1.0)


def test_a_write_goes_to_all_devices_and_the_first_failure_is_told() -> None:
    _server, client, peer = connected(None)
    nobody = client.peer("nobody", "127.0.0.1", 1)
    targets = [(peer, "d0", 1), (nobody, "d1", 2)]
    nothing: list[tuple[bytes, bytes]] = []
    version = (1, 0, b"/a/c/o", b"text/plain", [(b"X-Object-Meta-A", b"1")], nothing)
    place = (0, 1, bytes(16))

    ended = set[int]()

    def failures(token: int, write: TransportGroup) -> dict[int, object]:
        found: dict[int, object] = {}
        is_over = False
        while not is_over:
            assert wait(client, token, ended) == ("answered", None)
            answers, is_over = write.take()
            for index, (kind, value, told) in answers:
                assert (kind, told) == ("failed", None)
                assert isinstance(value, tuple)
                found[index] = value[0]
        ended.add(token)
        return found

    # This server handles no requests at all, and nobody listens at the other address.
    failed = {0: "remote", 1: "unreachable"}
    for token, guest in ((1, None), (3, (b"grant", b"o"))):
        put = client.put(token, targets, guest, place, version, (5, 1, b"etag"), b"bytes", 5.0, "tx1")
        assert failures(token, put) == failed
        delete = client.delete(token + 1, targets, guest, place, 1, b"/a/c/o", 5.0, "tx2")
        assert failures(token + 1, delete) == failed
    with pytest.raises(ValueError, match="limit"):
        client.put(9, targets, None, place, (*version[:2], b"x" * 70_000, *version[3:]), (0, 0, b""), b"", 5.0, "")
    write = client.delete(10, targets, None, place, 1, b"/a/c/o", 5.0, "")
    write.hurry()
    write.cancel()
