"""The question and the answer about all partitions that two devices share, which no message lists.

Both sides find these partitions by their own rings. What is compared has their numbers in its hashes, so sides with
different rings prove nothing wrong; they find that the partitions differ that only one of them has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import swiftlet_native

from swiftlet.ring.model import MAX_DEVICES
from swiftlet.store.sethash import HASH_SIZE
from swiftlet.sync.session.encoding import MAX_NUMBER, Reader, put_ascending
from swiftlet.transport.varints import put_varint
from swiftlet.transport.wire import WireError

MAX_SKIPPED = 256
"""Devices that a question about a pair can leave out."""
MAX_WITHOUT = 1 << 18
"""Partitions that a question about a pair can leave out."""
MAX_NODES = 16384
"""Nodes in one question about a pair."""
MAX_BRANCHES = 65536
"""Branches in one answer; enough for those of one node."""
MAX_STEP_BITS = 16
"""Bits of partition numbers between a node and its branches."""
NO_BRANCHES = b"\x01\x00"
"""The branches of no node."""

_NUMBER_BITS = 32
_CLOCKWISE, _TELL = 1, 2
_TOLD = 1


@dataclass(frozen=True, slots=True)
class Pair:
    """Names the partitions that one device compares with another by their ids in the ring.

    They are those of which both are primaries, or with `clockwise` those of which the answerer is the next primary
    behind the asker that is not `skipped`.
    """

    asker: int
    answerer: int
    clockwise: bool = False
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """Nodes of the tree over a pair's partitions, and how far below them the answer's branches are.

    A node has all partitions whose number, shifted right by `start` bits, is the node's. Its branches have those that
    agree in all but the last `end` bits.
    """

    start: int
    end: int
    nodes: Sequence[int]


@dataclass(frozen=True, slots=True)
class ComparePair:
    """Asks whether the receiver holds the same in all partitions of a pair but those in `without`.

    `hash` is over the numbers and roots of these partitions. If it is not the receiver's, the answer has the branches
    of the step's nodes, as many as fit and at least those of one. With an empty hash the receiver tells its own.
    """

    policy: int
    ring_version: int
    pair: Pair
    hash: bytes
    step: Step
    without: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Branches:
    """Answers with the branches of the first of a question's nodes, as native code has encoded them.

    `members` is a hash over the numbers of all partitions of the pair, and `hash` the one over the partitions in
    question and their roots; both are empty unless the question asked for them.
    """

    policy: int
    ring_version: int
    nodes: bytes = NO_BRANCHES
    members: bytes = b""
    hash: bytes = b""


def put_compare_pair(out: bytearray, message: ComparePair) -> None:
    """Append what follows the head of such a question. Raises WireError when it is over a limit."""
    pair, step = message.pair, message.step
    out.append((_CLOCKWISE if pair.clockwise else 0) | (0 if message.hash else _TELL))
    put_varint(out, pair.asker)
    put_varint(out, pair.answerer)
    put_ascending(out, pair.skipped, MAX_SKIPPED, "skipped devices")
    out += message.hash
    put_ascending(out, message.without, MAX_WITHOUT, "partitions")
    out += bytes((step.start, step.end))
    put_ascending(out, step.nodes, MAX_NODES, "nodes")


def compare_pair(reader: Reader, policy: int, ring: int) -> ComparePair:
    """Return such a question, of which the head was read. Raises WireError."""
    flags = reader.flags(_CLOCKWISE | _TELL)
    asker, answerer = reader.varint(MAX_DEVICES - 1), reader.varint(MAX_DEVICES - 1)
    skipped = tuple(reader.ascending(MAX_SKIPPED, MAX_DEVICES - 1, "skipped devices"))
    found = b"" if flags & _TELL else reader.take(HASH_SIZE)
    without = tuple(reader.ascending(MAX_WITHOUT, MAX_NUMBER, "partitions"))
    start, end = reader.take(2)
    if start > _NUMBER_BITS or not 0 < start - end <= MAX_STEP_BITS:
        raise WireError(f"there is no step from {start} to {end} bits")
    nodes = tuple(reader.ascending(MAX_NODES, MAX_NUMBER >> start, "nodes"))
    pair = Pair(asker, answerer, bool(flags & _CLOCKWISE), skipped)
    return ComparePair(policy, ring, pair, found, Step(start, end, nodes), without)


def put_branches(out: bytearray, message: Branches) -> None:
    """Append what follows the head of such an answer."""
    out.append(_TOLD if message.hash else 0)
    out += message.members + message.hash + message.nodes


def branches(reader: Reader, policy: int, ring: int) -> Branches:
    """Return such an answer, of which the head was read, up to its end. Raises WireError."""
    told = HASH_SIZE if reader.flags(_TOLD) else 0
    members, found = reader.take(told), reader.take(told)
    nodes = reader.rest()
    if swiftlet_native.sync_branches(nodes) is None:
        raise WireError("a sync message has branches that are no such, or bytes after its end")
    return Branches(policy, ring, nodes, members, found)


def differing_branches(mine: Branches, theirs: Branches, step: Step) -> tuple[int, list[int]]:
    """Return for how many of the step's nodes both sides have told the branches, and which branches differ.

    Raises WireError when either does not answer the question.
    """
    found = swiftlet_native.sync_differing_branches(mine.nodes, theirs.nodes, step.start, step.end, step.nodes)
    if found is None or (not found[0] and step.nodes):
        raise WireError("an answer has branches of other nodes than those asked about")
    return found
