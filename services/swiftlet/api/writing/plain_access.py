"""Whether objects of a container may be read and written by who knows nothing but the container.

The native front and clients with direct access move objects without Python. What they may do is decided here, for a
short time: they know no versions, no expiry, and no quota beyond the part of it that they were given.
"""

from __future__ import annotations

from collections.abc import Sequence

from swiftlet.api.context.access import TokenAccess
from swiftlet.api.context.core import Facts
from swiftlet.api.reading.versioning import archive_of, has_versions
from swiftlet.api.writing.expiry_changes import has_expiring
from swiftlet.auth.identity import Identity, authorize
from swiftlet.errors import Forbidden, Unauthorized
from swiftlet.model import ContainerInfo
from swiftlet.names import Path

ANY = "any object"
"""Stands for the name of every object of a container: rights do not depend on it."""


async def to_write(
    facts: Facts,
    identity: Identity | None,
    container: Path,
    methods: Sequence[str],
    max_age_s: float,
    *,
    expiring: bool = False,
) -> ContainerInfo | None:
    """Return the container if its objects may be written by these methods; None when only Python may do that.

    `expiring`: who writes leaves it to Python to replace or delete an object that expires, and so may write into a
    container that has such. Facts that are older than `max_age_s` are requested again. Raises Forbidden, Unauthorized,
    NotFound and Unavailable.
    """
    assert container.container is not None
    info = await facts.containers.facts(container.account, container.container, max_age_s)
    # The account's metadata have its quotas.
    await facts.accounts.metadata(container.account, max_age_s)
    await require(facts, identity, container, methods)
    # Replacing or deleting an object that expires removes its task from the expirer's queue, which only Python can.
    if is_versioned(facts, info) or (has_expiring(info) and not expiring):
        return None
    return info


async def require(facts: Facts, identity: Identity | None, container: Path, methods: Sequence[str]) -> None:
    """Raise Forbidden or Unauthorized unless all objects of a container may be accessed by these methods."""
    access = TokenAccess(facts.containers, facts.accounts, identity, None)
    for method in methods:
        await access.require(method, Path(container.account, container.container, ANY))


async def admits(facts: Facts, identity: Identity | None, container: Path, method: str) -> bool:
    """Return whether all objects of a container may be accessed by a method."""
    try:
        await require(facts, identity, container, (method,))
    except (Forbidden, Unauthorized):
        return False
    return True


def is_versioned(facts: Facts, info: ContainerInfo) -> bool:
    """Return whether a write keeps what it replaces, in any way."""
    return has_versions(info) or archive_of(facts, info) is not None


def by_role(identity: Identity | None, container: Path) -> bool:
    """Return whether the user's role alone allows reading."""
    if identity is None:
        return False
    try:
        authorize(identity, "GET", Path(container.account, container.container, ANY))
    except Forbidden:
        return False
    return True
