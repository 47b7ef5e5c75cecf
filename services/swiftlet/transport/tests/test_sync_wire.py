"""The messages of sync streams: round trips, what they cost, and what a stranger may say."""

from __future__ import annotations

from hashlib import blake2b
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.errors import DiskFull, SwiftletError, Unauthorized
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.sync_wire import MAX_REQUESTS, PATH, Answerer, Asker, Request
from swiftlet.transport.varints import put_varint
from swiftlet.transport.wire import WireError

KEY = ClusterKey(b"the cluster's key")


def ends(asks: ClusterKey | None = KEY, answers: ClusterKey | None = KEY, path: str = PATH) -> tuple[Asker, Answerer]:
    answerer = Answerer(answers, PATH)
    return Asker(asks, path, answerer.greeting), answerer


@given(
    st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=5), max_size=6), st.randoms(use_true_random=False)
)
def test_what_is_asked_arrives_and_answers_come_in_any_order(messages: list[list[bytes]], random: Random) -> None:
    asker, answerer = ends()
    asked: dict[int, bytes] = {}
    for payloads in messages:
        batch = answerer.requests(asker.message("sdb1", [Request(7, payload) for payload in payloads]))
        assert batch.device == "sdb1"
        assert batch.first == len(asked)
        assert {request.kind for request in batch.requests} == {7}
        asked.update(enumerate((request.payload for request in batch.requests), batch.first))
    numbers = list(asked)
    random.shuffle(numbers)
    half = len(numbers) // 2
    found: dict[int, bytes | SwiftletError] = {}
    for part in (numbers[:half], numbers[half:]):
        found.update(asker.answers(answerer.answers([(number, asked[number]) for number in part])))
    assert found == asked


def test_a_refusal_is_the_error_that_it_was() -> None:
    asker, answerer = ends()
    answerer.requests(asker.message("d", [Request(1, b"a"), Request(1, b"b")]))
    (one, two) = asker.answers(answerer.answers([(1, DiskFull("no room")), (0, b"fine")]))
    assert one[0] == 1
    assert isinstance(one[1], DiskFull)
    assert two == (0, b"fine")


def test_a_question_costs_three_bytes_and_an_answer_two() -> None:
    asker, answerer = ends()
    sizes = [len(asker.message("d", [Request(1, bytes(24))] * count)) for count in (1, 2, 3)]
    assert sizes == [16 + 16 + 2 + 26, 16 + 2 + 2 * 26, 16 + 2 + 3 * 26], "the first message has a nonce"
    assert len(answerer.answers([(number, bytes(4)) for number in range(6)])) == 6 * (2 + 4)


def test_only_who_has_the_key_is_heard() -> None:
    for asks, path in ((ClusterKey(b"another"), PATH), (None, PATH), (KEY, "/v1/other")):
        asker, answerer = ends(asks=asks, path=path)
        with pytest.raises(Unauthorized):
            answerer.requests(asker.message("d", [Request(1, b"")]))
    asker, answerer = ends(answers=ClusterKey(b"new", b"the cluster's key"))
    assert answerer.requests(asker.message("d", [Request(1, b"x")])).requests[0].payload == b"x", "an older key"


def test_what_was_overheard_fits_nowhere_else() -> None:
    asker, answerer = ends()
    messages = [asker.message("d", [Request(1, b"%d" % number)]) for number in range(3)]
    with pytest.raises(Unauthorized):
        Answerer(KEY, PATH).requests(messages[0])
    answerer.requests(messages[0])
    for replayed in (messages[0], messages[2]):
        with pytest.raises(Unauthorized):
            answerer.requests(replayed)
    changed = bytearray(messages[1])
    changed[-1] ^= 1
    with pytest.raises(Unauthorized):
        answerer.requests(bytes(changed))
    answerer.requests(messages[1])


def signed(body: bytes) -> tuple[Answerer, bytes]:
    """A message of somebody with the key whose body is this."""
    return Answerer(None, PATH), bytes(16) + blake2b(bytes(8) + body, digest_size=16).digest() + body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xff\xff\xff\x0f",
        b"\x05abc",
        b"\x01\xff",
        b"\x01d\x01",
        b"\x01d\x01\x05abc",
        b"\x01d\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x01d" + b"\x01\x00" * (MAX_REQUESTS + 1),
    ],
)
def test_garbage_is_told_from_requests(body: bytes) -> None:
    answerer, message = signed(body)
    with pytest.raises(WireError):
        answerer.requests(message)


@given(st.binary(max_size=60))
def test_anything_that_comes_is_answers_or_a_wire_error(data: bytes) -> None:
    asker, answerer = ends()
    answerer.requests(asker.message("d", [Request(1, b"")] * 3))
    try:
        found = asker.answers(data)
    except WireError:
        return
    assert all(0 <= number < 3 for number, _ in found)


@pytest.mark.parametrize("greeting", [b"", b"\x01", b"\x02" + bytes(16), b"\x01" + bytes(17)])
def test_another_greeting_is_not_understood(greeting: bytes) -> None:
    with pytest.raises(WireError, match="greeting"):
        Asker(KEY, PATH, greeting)
    with pytest.raises(WireError, match="has format version 2, this program understands 1: run the same release"):
        Asker(KEY, PATH, b"\x02" + bytes(16))


def test_an_answer_to_nothing_is_garbage() -> None:
    asker, answerer = ends()
    answerer.requests(asker.message("d", [Request(1, b"")]))
    with pytest.raises(WireError, match="was not asked"):
        asker.answers(answerer.answers([(1, b"")]))


@given(st.integers(0, 2**63))
def test_a_varint_is_as_short_as_it_can_be(value: int) -> None:
    out = bytearray()
    put_varint(out, value)
    assert len(out) == max(1, -(-value.bit_length() // 7))
