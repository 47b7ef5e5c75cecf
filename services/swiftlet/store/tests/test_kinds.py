"""A device stays with the store that first wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftlet.errors import StoreFormatError
from swiftlet.store.kinds import StoreKind, kind_of, open_store
from swiftlet.testing.store.conformance import content, key_of, put

OTHER: dict[StoreKind, StoreKind] = {"native": "plain", "plain": "native"}


def files_below(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.name != ".lock"}


@pytest.mark.parametrize("kind", OTHER)
def test_the_other_kind_is_refused_and_nothing_is_touched(tmp_path: Path, kind: StoreKind) -> None:
    assert kind_of(tmp_path) is None
    store = open_store(kind, tmp_path)
    put(store, key_of(1), 1, b"data")
    store.close()
    assert kind_of(tmp_path) == kind
    before = files_below(tmp_path)
    with pytest.raises(StoreFormatError, match=f"by the {kind} store|of the {kind} store") as caught:
        open_store(OTHER[kind], tmp_path)
    assert f"set object.store to {kind}" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert files_below(tmp_path) == before
    again = open_store(kind, tmp_path)
    assert content(again, key_of(1)) == b"data"
    again.close()


def test_an_empty_native_device_is_known_as_one(tmp_path: Path) -> None:
    open_store("native", tmp_path).close()
    assert kind_of(tmp_path) == "native"
    with pytest.raises(StoreFormatError):
        open_store("plain", tmp_path)


def test_a_native_device_that_lost_its_mark_is_still_one(tmp_path: Path) -> None:
    store = open_store("native", tmp_path)
    put(store, key_of(1), 1, b"data")
    store.close()
    (tmp_path / "format").unlink()
    with pytest.raises(StoreFormatError):
        open_store("plain", tmp_path)


def test_a_plain_device_that_never_held_anything_is_nobodys(tmp_path: Path) -> None:
    open_store("plain", tmp_path).close()
    assert kind_of(tmp_path) is None
    open_store("native", tmp_path).close()
    with pytest.raises(StoreFormatError):
        open_store("plain", tmp_path)


@pytest.mark.parametrize("kind", OTHER)
def test_what_others_keep_on_the_device_is_left_alone(tmp_path: Path, kind: StoreKind) -> None:
    foreign = {tmp_path / "outbox" / "1": b"row", tmp_path / ".rings" / "object" / "object-0.ring": b"ring"}
    for path, data in foreign.items():
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    assert kind_of(tmp_path) is None
    store = open_store(kind, tmp_path)
    put(store, key_of(1), 1, b"data")
    store.close()
    assert {path: path.read_bytes() for path in foreign} == foreign
