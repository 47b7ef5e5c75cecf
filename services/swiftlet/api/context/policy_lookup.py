"""Finds the storage policy of an object's container, also when the cached one is outdated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from swiftlet.api.context.core import SwiftApi
from swiftlet.errors import NotFound
from swiftlet.model import ContainerInfo
from swiftlet.names import Path

T = TypeVar("T")


async def container_of(api: SwiftApi, path: Path, advice: str = "") -> ContainerInfo:
    """Return the object's container; 404 that names it when there is none, and ends with `advice`."""
    assert path.container is not None
    try:
        return await api.containers.get(path.account, path.container)
    except NotFound as error:
        raise NotFound(f"container {path.container!r} does not exist{advice}") from error


async def with_policy(api: SwiftApi, path: Path, operation: Callable[[int], Awaitable[T]]) -> T:
    """Run a read with the container's policy; when a cached policy finds nothing, it is looked up again, with the
    container's move.
    """
    known = await container_of(api, path)
    try:
        return await operation(known.policy)
    except NotFound:
        assert path.container is not None
        now = await api.containers.refresh(path.account, path.container)
        if (now.policy, now.move) == (known.policy, known.move):
            raise
        return await operation(now.policy)
