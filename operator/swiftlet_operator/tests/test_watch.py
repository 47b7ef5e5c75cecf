"""Watches of metadata: what is told when they end, break off, are refused, or come too late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from swiftlet_operator import watch
from swiftlet_operator.kube import Metadata, _change, _lines
from swiftlet_operator.manifests import POD, Kind
from swiftlet_operator.problems import KubeError, KubeForbidden, KubeUnavailable

Step = tuple[str, str] | KubeError
"""A version and the name of what changed at it (empty for a bookmark), or how the watch breaks off."""


class Script:
    """Implements `swiftlet_operator.kube.Watching`: watches that go as the test says, and then hang."""

    def __init__(self, *watches: list[Step], refused: int = 0) -> None:
        self.begun: list[str] = []
        self.over = asyncio.Event()
        self._watches = list(watches)
        self._refused = refused

    async def heads(self, kind: Kind, namespace: str | None, labels: Mapping[str, str]) -> tuple[list[Metadata], str]:
        """One object, at version 1."""
        if self._refused:
            self._refused -= 1
            raise KubeForbidden("no")
        self.begun.append("list")
        return [{"name": "listed"}], "1"

    async def changes(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str], since: str
    ) -> AsyncIterator[tuple[str, Metadata | None]]:
        """The next watch."""
        self.begun.append(since)
        for step in self._watches.pop(0) if self._watches else ():
            if isinstance(step, KubeError):
                raise step
            version, name = step
            yield version, {"name": name} if name else None
        if not self._watches:
            self.over.set()
            await asyncio.Event().wait()


async def told(script: Script, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was told until the script was over."""
    monkeypatch.setattr(watch, "FIRST_DELAY_S", 0.001)
    names: list[str] = []
    task = asyncio.create_task(watch.follow(script, POD, None, {}, lambda one: names.append(one["name"])))
    await asyncio.wait_for(script.over.wait(), 20)
    task.cancel()
    await asyncio.wait([task])
    return names


async def test_a_watch_that_ends_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([("2", "a"), ("7", "")], [("8", "b")])

    assert await told(script, monkeypatch) == ["listed", "a", "b"]
    assert script.begun == ["list", "1", "7"]


async def test_a_watch_that_is_cut_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([("2", "a"), KubeUnavailable("cut")], [KubeUnavailable("still away")], [("3", "b")])

    assert await told(script, monkeypatch) == ["listed", "a", "b"]
    assert script.begun == ["list", "1", "2", "2"]


async def test_after_a_gap_everything_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([("2", "a"), KubeError("410 too old")], [("9", "b")])

    assert await told(script, monkeypatch) == ["listed", "a", "listed", "b"]


async def test_a_missing_right_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await told(Script([("2", "a")], refused=3), monkeypatch) == ["listed", "a"]


def test_events() -> None:
    made = b'{"type": "MODIFIED", "object": {"metadata": {"name": "a", "resourceVersion": "5"}}}'
    assert _change("", made) == ("5", {"name": "a", "resourceVersion": "5"})
    assert _change("", b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "6"}}}') == ("6", None)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"type": "ERROR", "object": {"code": 410, "message": "too old"}}', KubeError),
        (b'{"type": "ERROR", "object": {"code": 503}}', KubeUnavailable),
        (b'{"type": "MODIFIED", "object": {}}', KubeError),
        (b'{"type": "MODI', KubeError),
        (b"[]", KubeError),
    ],
)
def test_damaged_events(line: bytes, error: type[KubeError]) -> None:
    with pytest.raises(KubeError) as raised:
        _change("watching pods", line)

    assert type(raised.value) is error


async def test_lines_come_whole_whatever_their_pieces() -> None:
    class Pieces:
        async def iter_any(self) -> AsyncIterator[bytes]:
            for piece in (b"a", b"b\nc", b"", b"\nd\ne\n", b"cut off"):
                yield piece

    assert [line async for line in _lines(Pieces())] == [b"ab", b"c", b"d", b"e"]  # type: ignore[arg-type]
