"""`docs/sync.md` against the code: limits, types, modes, and messages made by hand from its tables."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from random import Random

from swiftlet.model import Entry, Kind
from swiftlet.sync.moving import copies_wire
from swiftlet.sync.session import encoding, messages, pair_messages
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
from swiftlet.sync.session.pair_messages import Branches, ComparePair, Pair, Step
from swiftlet.sync.session.tests.test_pair_search import by_name, compare, ring_of, setting
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
    step = Step(14, 10, (0, 5))
    the_same(
        ComparePair(3, 300, Pair(1, 300, True, (0, 7)), ONE, step, (0, 5, 306)),
        by_hand(5, b"\x01", b"\x01", b"\xac\x02", b"\x02\x00\x06", ONE, partitions, b"\x0e\x0a", b"\x02\x00\x04"),
    )
    the_same(
        ComparePair(3, 300, Pair(0, 1), b"", step),
        by_hand(5, b"\x02", b"\x00\x01", b"\x00", b"\x00", b"\x0e\x0a", b"\x02\x00\x04"),
    )
    places = b"\x04\x02" + b"\x02\x00\x0d" + b"abcdef" + b"\x10" + 16 * b"xyz"
    the_same(Branches(3, 300, places), by_hand(22, b"\x00", places))
    the_same(Branches(3, 300, places, TWO, ONE), by_hand(22, b"\x01", TWO, ONE, places))
    listed = (Listing(5, True, (data, gone)), Listing(300, False, ()))
    the_same(ManyEntries(3, 300, listed), by_hand(21, b"\x02\x05\x01\x02", first, second, b"\xac\x02\x00\x00"))


def test_the_limits_are_the_code_s() -> None:
    found = re.findall(r"^\| `([A-Z_]+)` \| (\d+)", PAGE, re.MULTILINE)
    assert found
    of_messages = ("MAX_MESSAGE", "MAX_PARTITIONS", "MAX_SUFFIX_HASHES", "MAX_WANTED", "MAX_ENTRIES")
    of_pairs = ("MAX_SKIPPED", "MAX_WITHOUT", "MAX_NODES", "MAX_BRANCHES")
    of_streams = ("MAX_PAYLOAD", "MAX_REQUESTS", "SENT_BYTES", "MAX_UNANSWERED", "MAX_UNANSWERED_BYTES")
    assert {name: int(value) for name, value in found} == {
        **{name: getattr(encoding, name) for name in of_messages},
        **{name: getattr(pair_messages, name) for name in of_pairs},
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


def test_the_size_of_an_exchange() -> None:
    page = " ".join(PAGE.split())
    (said, heard) = re.findall(r"equal to its peer sends (\d+) bytes and receives (\d+), whatever", page)[0]
    for part_power in (4, 14):
        here, there, shared = setting(ring_of(part_power))
        found = compare(here, there, shared)
        assert (found.asked, found.answered) == (int(said), int(heard))
    sentence = r"Where (\d+) of (\d+) differ, five questions take (\d+) bytes and their answers (\d+); by .* be (\d+)"
    (differing, count, asked, answered, named) = map(int, re.findall(sentence, page)[0])
    changed = Random(differing).sample(sorted(shared.partitions), differing)
    here, there, shared = setting(ring_of(14), changed)
    found = compare(here, there, shared)
    assert (len(shared.partitions), found.asked, found.answered) == (count, asked, answered)
    assert by_name(here, there, shared.partitions).bytes == named
