"""A device's update table and the native half of a container server: what crosses the border to Python.

The rules are tested in `native/crates/updates` and `native/crates/node`; here a client's rows come out as those of a
database.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import swiftlet_native

PLACE = (7, "AUTH_a", "cöntainer")
OFFSET = 1 << 63
UPDATE, DURABLE = 32, 33
NOT_TAKEN = 22
DEADLINE_S = 60


def packed(name: str, at: int, deleted: int = 0) -> tuple[str, int, int, str, str, None, None, int]:
    """A row as databases have it."""
    if deleted:
        return (name, at - OFFSET, 0, "", "", None, None, 1)
    return (name, at - OFFSET, 5, "etag", "text/plain", None, None, 0)


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def row(name: str, at: int, deleted: int = 0) -> bytes:
    """A row as it travels."""
    return text(name) + struct.pack(">QQ", at, 5) + text("etag") + text("text/plain") + bytes([deleted])


@pytest.fixture
def table(tmp_path: Path) -> Iterator[swiftlet_native.UpdateTable]:
    made = swiftlet_native.UpdateTable(tmp_path / "updates", "d0")
    yield made
    made.stop()


def is_due(table: swiftlet_native.UpdateTable) -> bool:
    return bool(select.select([table.fileno()], [], [], 0)[0])


def test_rows_come_out_as_databases_have_them(table: swiftlet_native.UpdateTable) -> None:
    assert not table.take(*PLACE, [packed("a", 1)])
    table.open(*PLACE)
    assert table.take(*PLACE, [packed("b", 2), packed("é", 1), packed("a", 1)])
    assert table.take(*PLACE, [packed("b", 2, deleted=1)])
    assert is_due(table)
    assert table.due() == [(PLACE, False)]
    assert not is_due(table)
    assert table.take_out(*PLACE) == [packed("a", 1), packed("b", 2, deleted=1), packed("é", 1)]
    assert table.take(*PLACE, [packed("c", 1)])
    with pytest.raises(ValueError, match="out for folding already"):
        table.take_out(*PLACE)
    assert table.has(*PLACE)
    table.folded(*PLACE, merged=False)
    assert len(table.take_out(*PLACE)) == 4
    table.folded(*PLACE, merged=True)
    assert table.take_out(*PLACE) == []
    assert (table.has(*PLACE), table.databases(), table.failed()) == (False, [], None)
    assert table.status() | {"bytes": 0, "journal_bytes": 0} == {
        "rows": 0,
        "bytes": 0,
        "databases": 0,
        "open": 1,
        "journal_files": 1,
        "journal_bytes": 0,
        "taken": 5,
        "refused": 0,
        "not_taken": 1,
        "failed": None,
    }
    table.close(*PLACE)
    assert not table.take(*PLACE, [packed("d", 1)])


def test_a_start_has_what_was_not_durable_in_databases(tmp_path: Path, table: swiftlet_native.UpdateTable) -> None:
    table.open(*PLACE)
    assert table.take(*PLACE, [packed("a", 1)])
    with pytest.raises(OSError, match=r"device d1: .* is in use by process"):
        swiftlet_native.UpdateTable(tmp_path / "updates", "d1")
    table.stop()
    again = swiftlet_native.UpdateTable(tmp_path / "updates", "d0")
    assert again.databases() == [PLACE]
    assert again.due() == [(PLACE, False)]
    assert again.take_out(*PLACE) == [packed("a", 1)]
    again.folded(*PLACE, True)
    again.durable_in_databases(again.mark())
    again.stop()
    assert again.status()["journal_files"] == 0


@pytest.mark.parametrize("rows", [[], [packed("", 1)], [packed("a", 1)] * 1001, [packed("a\0", 1)]])
def test_what_no_message_may_have_is_a_value_error(table: swiftlet_native.UpdateTable, rows: Sequence[object]) -> None:
    table.open(*PLACE)
    with pytest.raises(ValueError, match=r"row|name"):
        table.take(*PLACE, rows)  # type: ignore[arg-type]


def test_no_directory_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        swiftlet_native.UpdateTable(tmp_path / "none" / "updates", "d0")


def answer(node: swiftlet_native.TransportNode, token: int) -> tuple[int, bytes]:
    """Wait for the reply to a call."""
    while select.select([node.fileno()], [], [], DEADLINE_S)[0]:
        for of, kind, value in node.events():
            assert (of, kind) in ((token, "sent"), (token, "reply")), value
            if kind == "reply":
                assert isinstance(value, tuple)
                return value[0], value[1]
    raise TimeoutError("no answer")


def test_clients_bring_rows_over_the_transport(table: swiftlet_native.UpdateTable) -> None:
    keys = [b"secret"]
    server = swiftlet_native.ContainerServer(
        "containers", "machine", keys, {"d0": table}, {"d1": "it is not mounted"}, pool_bytes=8 << 20
    )
    port = server.listen("127.0.0.1", 0)
    client = swiftlet_native.TransportNode("client", "other", keys, pool_bytes=8 << 20)
    peer = client.peer("containers", "127.0.0.1", port)
    header = text("d0") + struct.pack(">I", PLACE[0]) + text(PLACE[1]) + text(PLACE[2])
    rows = row("b", 3) + row("a", 2, deleted=1)
    peer.call(1, UPDATE, 10.0, "tx", header, rows)
    assert answer(client, 1)[0] == NOT_TAKEN
    table.open(*PLACE)
    peer.call(2, UPDATE, 10.0, "tx", header, rows)
    status, taken = answer(client, 2)
    assert (status, len(taken)) == (0, 16)
    peer.call(3, DURABLE, 10.0, "tx", text("d0") + taken, b"")
    assert answer(client, 3) == (0, b"")
    peer.call(4, DURABLE, 10.0, "tx", text("d0") + bytes(16), b"")
    assert answer(client, 4)[0] == NOT_TAKEN
    assert table.take_out(*PLACE) == [packed("a", 2, deleted=1), packed("b", 3)]
    assert [(one["peer"], one["is_client"]) for one in server.report()] == [("client", True)]
    server.leave()
    server.stop()
    with pytest.raises(ValueError, match="has been stopped"):
        server.listen("127.0.0.1", 0)
