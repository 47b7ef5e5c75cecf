"""The boundary between the generator and a store: requests that are measured, and how they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class StoreFailure(Exception):
    """A request failed; failures are counted by kind."""

    def __init__(self, kind: str, text: str) -> None:
        """`kind` is counted, such as `status 503`, and `text` is one example of it."""
        super().__init__(kind, text)
        self.kind = kind
        self.text = text


class Store(Protocol):
    """An account of a store, for one event loop. All methods raise StoreFailure."""

    async def create_container(self, container: str) -> None:
        """Create a container, which may be there."""

    async def delete_container(self, container: str) -> None:
        """Delete a container, which may be gone."""

    async def put(self, container: str, name: str, body: bytes) -> None:
        """Store an object; return once it is acknowledged."""

    async def get(self, container: str, name: str) -> bytes:
        """Return an object's bytes."""

    async def head(self, container: str, name: str) -> int:
        """Return an object's size in bytes."""

    async def delete(self, container: str, name: str) -> None:
        """Delete an object; `status 404` when there is none."""

    async def names(self, container: str, after: str, most: int) -> list[str]:
        """Return a page of names."""

    async def close(self) -> None:
        """Close the connections of this event loop."""

    @property
    def over_http(self) -> int:
        """Return how many requests for objects went over HTTP so far, in place of going directly."""
        ...


OpenStore = Callable[[], Store]
"""Makes a store in a process of the generator; it can be pickled."""
