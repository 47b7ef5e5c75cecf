"""Frames: who does not have the token can neither make one, nor change, repeat or leave one out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from swiftlet.bench.errors import BenchError
from swiftlet.bench.workers import frames
from swiftlet.bench.workers.frames import LENGTH_BYTES, MAX_FRAME_BYTES, Session, is_proof, length_of, proof, read_plain

TOKEN = "a token of enough length"


def pair(token: str = TOKEN) -> tuple[Session, Session]:
    return Session(TOKEN, "coordinator", "1", "2"), Session(token, "worker", "1", "2")


def body(frame: bytes) -> bytes:
    assert length_of(frame[:LENGTH_BYTES], MAX_FRAME_BYTES) == len(frame) - LENGTH_BYTES
    return frame[LENGTH_BYTES:]


def test_messages_go_both_ways() -> None:
    coordinator, worker = pair()
    for number in range(3):
        assert worker.read(body(coordinator.frame({"kind": "go", "step": number}))) == {"kind": "go", "step": number}
        assert coordinator.read(body(worker.frame({"kind": "ready"}))) == {"kind": "ready"}


def test_a_proof_is_of_one_side_one_token_and_both_nonces() -> None:
    given = proof(TOKEN, "worker", "1", "2")
    assert is_proof(given, TOKEN, "worker", "1", "2")
    assert not is_proof(given, TOKEN, "coordinator", "1", "2")
    assert not is_proof(given, "another token", "worker", "1", "2")
    assert not is_proof(given, TOKEN, "worker", "1", "3")
    assert not is_proof(None, TOKEN, "worker", "1", "2")
    assert not is_proof("é", TOKEN, "worker", "1", "2")


@pytest.mark.parametrize(
    "attack",
    [
        lambda first, second: first[:-1] + b"]",
        lambda first, second: second,
        lambda first, second: b"",
        lambda first, second: first[: len(first) // 2],
    ],
    ids=["changed", "one left out", "empty", "cut off"],
)
def test_a_frame_that_was_tampered_with_is_refused(attack: Callable[[bytes, bytes], bytes]) -> None:
    coordinator, worker = pair()
    first, second = (body(coordinator.frame({"kind": kind})) for kind in ("go", "stop"))
    with pytest.raises(BenchError, match="changed on its way"):
        worker.read(attack(first, second))


def test_a_frame_that_is_repeated_or_sent_back_is_refused() -> None:
    coordinator, worker = pair()
    frame = body(coordinator.frame({"kind": "go"}))
    worker.read(frame)
    with pytest.raises(BenchError, match="changed on its way"):
        worker.read(frame)
    with pytest.raises(BenchError, match="changed on its way"):
        pair()[0].read(frame)


def test_sizes_are_limited_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BenchError, match=r"4,294,967,295 bytes is announced; 16,777,216 are the most"):
        length_of(b"\xff" * LENGTH_BYTES, MAX_FRAME_BYTES)
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 100)
    with pytest.raises(BenchError, match="100 are the most"):
        pair()[0].frame({"kind": "x" * 100})


@pytest.mark.parametrize("text", [b"", b"[", b"[]", b"{}", b'{"kind": 1}', b"\xff", b"[" * 4000])
def test_what_is_no_message_is_refused(text: bytes) -> None:
    with pytest.raises(BenchError, match="no message"):
        read_plain(text)
