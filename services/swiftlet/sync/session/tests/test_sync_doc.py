"""`docs/sync.md` against the code: limits, types, modes, and messages made by hand from its tables."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from swiftlet.model import Entry, Kind
from swiftlet.sync.moving import copies_wire
from swiftlet.sync.session import messages
from swiftlet.sync.session.messages import (
    AskEntries,
    AskManyEntries,
    AskSuffixes,
    Compare,
    Entries,
    Equal,
    Listing,
    ManyEntries,
    Message,
    Roots,
    Suffixes,
    SuffixHashes,
    Wanted,
    decode,
    encode,
)
from swiftlet.sync.session.topology import MODES, First
from swiftlet.timestamp import Timestamp
from swiftlet.transport import sync_wire

PAGE = (Path(__file__).resolve().parents[5] / "docs/sync.md").read_text("utf-8")
ONE, TWO = bytes(range(16)), bytes(range(16, 32))


def by_hand(kind: int, *parts: bytes) -> bytes:
    return bytes([1, kind, 3, 0xAC, 0x02]) + b"".join(parts)


def the_same(message: Message, data: bytes) -> None:
    assert encode(message).hex() == data.hex()
    assert decode(data) == message


def test_messages_made_by_hand() -> None:
    partitions = b"\x03" + b"\x00" + b"\x04" + b"\xac\x02"
    the_same(Compare(3, 300, (0, 5, 306), ONE), by_hand(1, b"\x00", ONE, partitions))
    the_same(Compare(3, 300, (5,), ONE, leaves=True), by_hand(1, b"\x01", ONE, b"\x01\x05"))
    the_same(AskSuffixes(3, 300, (0, 5, 306)), by_hand(2, partitions))
    the_same(AskEntries(3, 300, 300, ("000", "fff")), by_hand(3, b"\xac\x02", b"\x02\x00\xfe\x1f", b"\x00"))
    the_same(AskEntries(3, 300, 1, ("001",), TWO), by_hand(3, b"\x01", b"\x01\x01", b"\x01", TWO))
    the_same(Equal(3, 300), by_hand(17))
    the_same(Roots(3, 300, (ONE, TWO)), by_hand(18, b"\x02", ONE, TWO))
    found = SuffixHashes(300, True, {"abc": ONE, "00f": TWO})
    hashes = b"\x00\x0f" + TWO + b"\x0a\xbc" + ONE
    the_same(Suffixes(3, 300, (found,)), by_hand(19, b"\x01", b"\xac\x02", b"\x01", b"\x02", hashes))
    data = Entry(ONE, Kind.DATA, Timestamp(5), Timestamp(7), Timestamp(6))
    gone = Entry(TWO, Kind.TOMBSTONE, Timestamp(5))
    first = ONE + b"\x81" + struct.pack(">QQQ", 5, 7, 6)
    second = TWO + b"\x02" + struct.pack(">Q", 5)
    the_same(Entries(3, 300, True, True, (data, gone)), by_hand(20, b"\x03", b"\x02", first, second))
    wanted = (Wanted(5, ("000", "fff")), Wanted(300, ("001",)))
    the_same(AskManyEntries(3, 300, wanted), by_hand(4, b"\x02\x05\xa6\x02", b"\x02\x00\xfe\x1f", b"\x01\x01"))
    listed = (Listing(5, True, (data, gone)), Listing(300, False, ()))
    the_same(ManyEntries(3, 300, listed), by_hand(21, b"\x02\x05\x01\x02", first, second, b"\xac\x02\x00\x00"))


def test_the_limits_are_the_code_s() -> None:
    found = re.findall(r"^\| `([A-Z_]+)` \| (\d+)", PAGE, re.MULTILINE)
    assert found
    of_messages = ("MAX_MESSAGE", "MAX_PARTITIONS", "MAX_SUFFIX_HASHES", "MAX_WANTED", "MAX_ENTRIES")
    of_streams = ("MAX_PAYLOAD", "MAX_REQUESTS", "SENT_BYTES", "MAX_UNANSWERED", "MAX_UNANSWERED_BYTES")
    assert {name: int(value) for name, value in found} == {
        **{name: getattr(messages, name) for name in of_messages},
        **{name: getattr(sync_wire, name) for name in of_streams},
    }
    for name in ("MAX_OBJECTS", "MAX_BYTES", "ALONE_BYTES"):
        assert f"`{name}` = {getattr(copies_wire, name)} " in " ".join(PAGE.split())


def test_the_types_are_the_code_s() -> None:
    found = re.findall(r"^\| (\d+) \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {name: int(value) for value, name in found} == {
        kind.__name__: value for kind, value in messages._TYPES.items()
    }


def test_the_modes_are_the_code_s() -> None:
    section = PAGE.split("## Modes")[1].split("## Messages")[0]
    found = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| ([^|]+) \|", section, re.MULTILINE)
    assert {name for name, *_ in found} == set(MODES)
    first = {First.BATCH: "one hash", First.ROOT: "one partition's root", First.SUFFIXES: "`AskSuffixes`"}
    for name, said, brings in found:
        assert said.startswith(first[MODES[name].first])
        assert (brings.strip() == "both directions") is MODES[name].pull


def test_the_size_of_a_stable_exchange() -> None:
    sentence = r"has (\d+) partitions in common with it sends (\d+) bytes, .* and receives (\d+) bytes"
    (count, said, heard) = re.findall(sentence, " ".join(PAGE.split()))[0]
    common = tuple(range(0, 6 * int(count), 6))
    head = len(encode(Compare(0, 1, (), ONE))) - 1
    assert int(said) == head
    assert len(encode(Compare(0, 1, common, ONE))) == head + 2 + int(count)
    assert len(encode(Equal(0, 1))) == int(heard)
