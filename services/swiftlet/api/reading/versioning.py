"""Which containers keep versions, and how: what is cached of a container, and what a request may change of it.

https://docs.openstack.org/swift/latest/middleware.html#object-versioning. A container keeps no versions or is in one of
these modes: with versions of its objects in a hidden container (`X-Versions-Enabled`), or with what was overwritten in
another container of the client's (`X-Versions-Location`, a stack, and `X-History-Location`, a history). The first one
can't be combined with the other two.

Fault model: every process of every proxy caches containers for itself. A write therefore requests again what is older
than `versioning.agreement_s`, and a request that changes the mode waits that long, so that a write that begins after
its response is in the new mode everywhere. When no container server answers within `PATIENCE_S`, the cached container
counts, for at most `proxy.container_info_ttl_s`: objects can be written while container servers are down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from swiftlet.api.context.core import Call, Facts, SwiftApi
from swiftlet.api.context.policy_lookup import container_of
from swiftlet.api.context.privileged import SYNC_TO
from swiftlet.api.http.listings import says_yes
from swiftlet.api.http.problems import ApiError
from swiftlet.api.http.reserved import versions_container
from swiftlet.errors import InvalidName, NotEmpty, NotFound, SwiftletError
from swiftlet.model import ContainerInfo
from swiftlet.names import MAX_CONTAINER_NAME, Path, decode
from swiftlet.timestamp import Timestamp

ENABLED = "X-Versions-Enabled"
STACK, HISTORY = "X-Versions-Location", "X-History-Location"
VERSION_ID, CURRENT_VERSION_ID = "X-Object-Version-Id", "X-Object-Current-Version-Id"
NULL = "null"
"""The id of what is not a version: an object written while its container kept none."""
DELETE_MARKER = "application/x-deleted;swift_versions_deleted=1"
"""The content type of the empty object that records a deletion; clients can't set one like it."""
PATIENCE_S = 0.5


@dataclass(frozen=True, slots=True)
class Archive:
    """Where a container in one of the older modes keeps what was overwritten."""

    container: str
    history: bool
    """Whether a DELETE adds to it; otherwise it brings the newest one back."""


def has_versions(container: ContainerInfo) -> bool:
    """Return whether the container keeps versions or ever did."""
    return ENABLED in container.metadata


def keeps_versions(container: ContainerInfo) -> bool:
    """Return whether every write makes a version."""
    return container.metadata.get(ENABLED) == "True"


def archive_of(api: Facts, container: ContainerInfo) -> Archive | None:
    """Return the archive of a container in an older mode; None for others, and for all while `allow_versioned_writes`
    is off.
    """
    if not api.options.versioning.allow_versioned_writes:
        return None
    for header in (HISTORY, STACK):
        location = container.metadata.get(header)
        if location:
            return Archive(decode(location), header == HISTORY)
    return None


async def container_to_write(api: SwiftApi, path: Path, advice: str = "") -> ContainerInfo:
    """Return the object's container in the state that all processes agree on; 404 that names it when there is none."""
    assert path.container is not None
    agreed = api.containers.known(path.account, path.container, api.options.versioning.agreement_s)
    if agreed is not None:
        return agreed
    known = await container_of(api, path, advice)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await api.containers.get(path.account, path.container, api.options.versioning.agreement_s)
    except NotFound as error:
        raise NotFound(f"container {path.container!r} does not exist{advice}") from error
    except (TimeoutError, SwiftletError):
        return known


async def mode_changes(call: Call) -> dict[str, str]:
    """Return the changes that a PUT or POST makes to a container's versioning mode, as metadata; 400 and 412 for
    invalid ones.
    """
    changes = _enabling(call) | _locations(call)
    set_now = {name for name, value in changes.items() if value}
    copied = call.request.headers.get(SYNC_TO) if call.owner else None
    if not (set_now or copied):
        return changes
    try:
        held = (await call.api.listings.container_info(call.path.account, call.container)).metadata
    except NotFound:
        held = {}
    enabled = changes.get(ENABLED) or held.get(ENABLED, "")
    if enabled and (held.get(SYNC_TO) if copied is None else copied):
        raise ApiError(
            400,
            "Cannot enable object versioning on a container configured as source of container syncing."
            if ENABLED in set_now
            else "Cannot configure container sync on a container with object versioning configured.",
        )
    kept = {name for name in (ENABLED, STACK, HISTORY) if held.get(name)} - changes.keys() | set_now
    if ENABLED in kept and kept & {STACK, HISTORY}:
        raise ApiError(
            400,
            "Cannot enable object versioning on a container that is already using the legacy versioned writes feature."
            if ENABLED in set_now
            else "a container with object versioning (X-Versions-Enabled) can't have X-Versions-Location "
            "or X-History-Location",
        )
    return changes


def _enabling(call: Call) -> dict[str, str]:
    text = call.request.headers.get(ENABLED)
    if text is None:
        return {}
    if not call.api.options.versioning.allow_object_versioning:
        raise ApiError(412, "Object versioning is disabled")
    return {ENABLED: "True" if says_yes(text) else "False"}


def _locations(call: Call) -> dict[str, str]:
    """Return the archive that the headers name, of either kind; setting one takes precedence over removing one."""
    headers = call.request.headers
    wanted = {name: headers[name].strip() for name in (STACK, HISTORY) if name in headers}
    given = {name: value for name, value in wanted.items() if value}
    if len(given) > 1:
        raise ApiError(400, f"Only one of {STACK} or {HISTORY} may be specified")
    if given:
        if not call.api.options.versioning.allow_versioned_writes:
            raise ApiError(412, "Versioned Writes is disabled")
        ((name, value),) = given.items()
        _check_location(name, value)
        return {STACK: "", HISTORY: ""} | {name: value}
    removes = any(headers.get("X-Remove-" + name.removeprefix("X-")) for name in (STACK, HISTORY))
    return {STACK: "", HISTORY: ""} if wanted or removes else {}


def _check_location(name: str, value: str) -> None:
    try:
        container = decode(value)
    except InvalidName as error:
        raise ApiError(412, f"{name}: {error}") from error
    if "/" in container or not container:
        raise ApiError(412, f"{name}: Container name cannot contain slashes")
    if len(container.encode()) > MAX_CONTAINER_NAME:
        raise ApiError(412, f"{name}: a container name has at most {MAX_CONTAINER_NAME} bytes")


async def await_agreement(call: Call, changes: Mapping[str, str]) -> None:
    """Wait until no process writes in the old mode any more."""
    if changes:
        await asyncio.sleep(call.api.options.versioning.agreement_s)


async def bytes_of_versions(api: SwiftApi, info: ContainerInfo) -> int:
    """Return the bytes in the hidden container, which count with those of its container."""
    if not has_versions(info):
        return 0
    try:
        return (await api.listings.container_info(info.account, versions_container(info.container))).bytes_used
    except NotFound:
        return 0


async def delete_versions_container(call: Call) -> None:
    """Remove the hidden container before its container is deleted; 409 while there are versions.

    If the container then stays, because it has objects, the next version creates the hidden one anew.
    """
    info = await call.api.containers.refresh(call.path.account, call.container)
    if not has_versions(info):
        return
    hidden = versions_container(call.container)

    async def delete(timestamp: Timestamp) -> None:
        await call.api.listings.delete_container(call.path.account, hidden, timestamp)

    try:
        await call.stamped(delete)
    except NotEmpty as error:
        raise ApiError(409, "Delete all versions before deleting container.") from error
    except NotFound:
        return
    finally:
        call.api.containers.forget(call.path.account, hidden)


async def versions_policy(api: SwiftApi, path: Path, container: ContainerInfo) -> int:
    """Return the policy of the hidden container for an object's versions; a missing container is created."""
    hidden = Path(path.account, versions_container(container.container), "")
    try:
        return (await container_of(api, hidden)).policy
    except NotFound:
        assert hidden.container is not None
        policy = api.options.policies.for_new(container.policy)
        await api.listings.put_container(hidden.account, hidden.container, api.clock.next(), {}, None, policy)
        # Another request may be asking for it, and may have asked before it was there.
        api.containers.forget(hidden.account, hidden.container)
        return (await container_of(api, hidden)).policy


def parse_version(container: ContainerInfo, text: str) -> Timestamp | None:
    """Return the version that `version-id` names, None for `null`; 400 for what is no version's id."""
    if text == NULL:
        return None
    if not has_versions(container):
        raise ApiError(400, "version-aware operations require that the container is versioned")
    try:
        return Timestamp.parse(text)
    except ValueError as error:
        raise ApiError(400, "Invalid version parameter") from error
