"""The boundary through which placement gets rings: always the newest that is loaded, replaced as a whole."""

from __future__ import annotations

from typing import Protocol

from swiftlet.ring.lookup import Ring


class ObjectRings(Protocol):
    """The rings of objects as this process knows them."""

    def objects(self, policy: int) -> Ring:
        """Return the ring of a storage policy's objects. Raises Unavailable when it is not loaded."""
        ...


class Rings(ObjectRings, Protocol):
    """The rings of a cluster as this process knows them."""

    def account(self) -> Ring:
        """The ring of account databases."""
        ...

    def container(self) -> Ring:
        """The ring of container databases."""
        ...
