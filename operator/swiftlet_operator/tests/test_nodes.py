"""Looks at nodes: when clusters are told, and how often the API server is asked."""

from __future__ import annotations

import asyncio

import pytest

from swiftlet_operator import nodes
from swiftlet_operator.manifests import Manifest
from swiftlet_operator.nodes import follow_nodes
from swiftlet_operator.problems import KubeForbidden


class Script:
    """Implements `swiftlet_operator.nodes.Nodes`: what is cordoned and tainted with each look, and then the end."""

    def __init__(self, *looks: tuple[str, str] | None) -> None:
        self.over = asyncio.Event()
        self.asked: list[bool] = []
        self._looks = list(looks)
        self._tainted = ""

    async def nodes(self, *, cordoned_only: bool) -> list[Manifest]:
        self.asked.append(cordoned_only)
        if not cordoned_only:
            return [_node(name, taint=name in self._tainted) for name in "abc"]
        if not self._looks:
            self.over.set()
            await asyncio.Event().wait()
        look = self._looks.pop(0)
        if look is None:
            raise KubeForbidden("no")
        cordoned, self._tainted = look
        return [_node(name, cordoned=True) for name in cordoned]


def _node(name: str, *, cordoned: bool = False, taint: bool = False) -> Manifest:
    taints = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}] if taint else []
    return {"metadata": {"name": name}, "spec": {"unschedulable": cordoned, "taints": taints}}


async def told(script: Script, monkeypatch: pytest.MonkeyPatch, all_s: float = 0.0) -> int:
    """How often clusters are told until the script is over."""
    monkeypatch.setattr(nodes, "CORDONED_S", 0.0)
    monkeypatch.setattr(nodes, "ALL_S", all_s)
    calls: list[None] = []
    following = asyncio.ensure_future(follow_nodes(script, lambda: True, lambda: calls.append(None)))
    try:
        async with asyncio.timeout(10):
            await script.over.wait()
    finally:
        following.cancel()
    return len(calls)


async def test_clusters_are_told_of_changes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [("", ""), ("a", ""), ("a", ""), ("ab", ""), ("b", ""), ("", ""), ("", "")]
    assert await told(Script(*looks), monkeypatch) == 4


async def test_taints_of_autoscalers_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await told(Script(("", ""), ("", "c"), ("", "c"), ("", "")), monkeypatch) == 2


async def test_all_nodes_are_asked_for_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(*[("", "")] * 20)
    await told(script, monkeypatch, all_s=60.0)
    assert script.asked.count(False) == 1


async def test_a_refusal_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await told(Script(("a", ""), None, ("a", ""), ("", "")), monkeypatch) == 2


async def test_who_does_not_lead_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "CORDONED_S", 0.0)
    script = Script(("a", ""))
    following = asyncio.ensure_future(follow_nodes(script, lambda: False, lambda: None))
    for _ in range(20):
        await asyncio.sleep(0)
    following.cancel()
    assert script.asked == []
