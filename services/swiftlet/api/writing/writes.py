"""The last step of a PUT and of a DELETE: what becomes of the previous object, by its container's mode."""

from __future__ import annotations

from swiftlet.api.context.core import Call
from swiftlet.api.context.new_object import NewObject
from swiftlet.api.context.policy_lookup import with_policy
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading.versioning import archive_of, container_to_write, keeps_versions
from swiftlet.api.writing.duplicates import Place
from swiftlet.api.writing.expiry_changes import delete_expiring
from swiftlet.api.writing.legacy_versions import delete_locked, put_locked
from swiftlet.api.writing.storing import store
from swiftlet.api.writing.version_writes import delete_current, put_version
from swiftlet.errors import NotFound
from swiftlet.model import ContainerInfo, PutFooter, PutRecord
from swiftlet.names import Path
from swiftlet.web.front_listener import may_have_deleted


async def put_object(new: NewObject, container: ContainerInfo) -> tuple[PutRecord, PutFooter]:
    """Store a new object."""
    synced = new.call.synced
    if synced is not None:
        _refuse_versions(new.call, container)
        return await store(new, container.policy, synced.at)
    if keeps_versions(container):
        return await put_version(new, container)
    archive = archive_of(new.call.api, container)
    if archive is not None:
        return await put_locked(new, Place(new.path, container.policy), archive)
    return await store(new, container.policy)


def _refuse_versions(call: Call, container: ContainerInfo) -> None:
    """Raise 403 where a write makes versions: they have the times at which they are made, and copies keep theirs."""
    if keeps_versions(container) or archive_of(call.api, container) is not None:
        raise ApiError(403, f"container {container.container!r} keeps versions: container sync can't write to it")


async def delete_object(call: Call, path: Path, keep: bool = True) -> None:
    """Delete an object. Raises NotFound when there was none.

    Without `keep` an object with versions is deleted without a delete marker and its versions stay; archives keep it
    anyway.
    """
    container = await container_to_write(call.api, path)
    if call.synced is not None:
        _refuse_versions(call, container)
    if keep and keeps_versions(container):
        await delete_current(call, path, container)
        return

    async def delete(policy: int) -> None:
        written = await call.stamped(lambda timestamp: delete_expiring(call.api, path, policy, timestamp))
        # What a native front has begun is not there any more.
        if not (written.existed or may_have_deleted(call.request)):
            raise NotFound(f"object {path.obj!r} does not exist")

    archive = archive_of(call.api, container)
    if archive is None:
        await with_policy(call.api, path, delete)
    else:
        main = Place(path, container.policy)
        await delete_locked(call, main, archive, lambda: with_policy(call.api, path, delete))
