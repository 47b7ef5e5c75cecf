"""Containers with versions, links and archives for tests."""

from __future__ import annotations

import json
from typing import Any

from swiftlet.api.tests.proxy import Answer, Proxy
from swiftlet.settings.linking import VersioningSection

AT_ONCE = VersioningSection(agreement_s=0)
"""Of proxies that ask for a container before every write, so that no test waits."""


async def list_json(proxy: Proxy, container: str = "c", query: str = "") -> list[dict[str, Any]]:
    """A listing."""
    answer = await proxy.call("GET", container, query="format=json" + (query and "&" + query))
    assert answer.status == 200, answer
    listed: list[dict[str, Any]] = json.loads(answer.body)
    return listed


async def versions(proxy: Proxy, query: str = "", container: str = "c") -> list[tuple[str, str, bool]]:
    """Name, version and whether it is the latest, of all versions."""
    answer = await proxy.call("GET", container, query="versions" + (query and "&" + query))
    assert answer.status == 200, answer
    return [(line["name"], line["version_id"], line["is_latest"]) for line in json.loads(answer.body)]


async def put(proxy: Proxy, body: bytes, name: str = "c/o", headers: dict[str, str] | None = None) -> Answer:
    """An object."""
    answer = await proxy.call("PUT", name, headers, body)
    assert answer.status == 201, answer
    return answer


async def put_version(proxy: Proxy, body: bytes, name: str = "c/o", headers: dict[str, str] | None = None) -> str:
    """A version; its id."""
    return (await put(proxy, body, name, headers)).headers["X-Object-Version-Id"]


async def enable(proxy: Proxy, container: str = "c", enabled: bool = True) -> None:
    """Begin or stop to keep versions."""
    answer = await proxy.call("POST", container, {"X-Versions-Enabled": str(enabled)})
    assert answer.status == 204, answer
