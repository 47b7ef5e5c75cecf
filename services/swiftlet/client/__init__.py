"""The client of a store that speaks the Swift API: a library, a command line and a file system for fsspec.

    from swiftlet.client import Client

    with Client() as store:                      # credentials from the environment
        store.create_container("photos")
        store.put("photos", "a.jpg", Path("a.jpg"))
        print(store.get("photos", "a.jpg").info.etag)

`AsyncClient` is the same for programs with an event loop. What both do is in rooms of its own: `objects` (repetition,
hedging, verification), `uploads` and `downloads` (large objects), `account` (everything but objects' bytes). Below
them is the boundary `way`: how one request for an object gets to the store; `http` is one.

This package is also a wheel of its own, `swiftlet-client`: it imports nothing else of this project. Names are imported
when they are first used, so that a command that only shows its help is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swiftlet.client.bodies import Source as Source
    from swiftlet.client.client import AsyncClient as AsyncClient
    from swiftlet.client.client import Name as Name
    from swiftlet.client.credentials import V1 as V1
    from swiftlet.client.credentials import ApplicationCredential as ApplicationCredential
    from swiftlet.client.credentials import Catalog as Catalog
    from swiftlet.client.credentials import Credentials as Credentials
    from swiftlet.client.credentials import KeystoneName as KeystoneName
    from swiftlet.client.credentials import KeystonePassword as KeystonePassword
    from swiftlet.client.credentials import KeystoneToken as KeystoneToken
    from swiftlet.client.credentials import MountedSecret as MountedSecret
    from swiftlet.client.credentials import Token as Token
    from swiftlet.client.credentials import find_credentials as find_credentials
    from swiftlet.client.errors import BadRequest as BadRequest
    from swiftlet.client.errors import ChecksumMismatch as ChecksumMismatch
    from swiftlet.client.errors import ClientError as ClientError
    from swiftlet.client.errors import ConfigurationError as ConfigurationError
    from swiftlet.client.errors import Conflict as Conflict
    from swiftlet.client.errors import ConnectionFailed as ConnectionFailed
    from swiftlet.client.errors import Forbidden as Forbidden
    from swiftlet.client.errors import LocalError as LocalError
    from swiftlet.client.errors import NotFound as NotFound
    from swiftlet.client.errors import NotModified as NotModified
    from swiftlet.client.errors import NotRepeatable as NotRepeatable
    from swiftlet.client.errors import PreconditionFailed as PreconditionFailed
    from swiftlet.client.errors import RangeNotSatisfiable as RangeNotSatisfiable
    from swiftlet.client.errors import Rejected as Rejected
    from swiftlet.client.errors import ServerError as ServerError
    from swiftlet.client.errors import StatusError as StatusError
    from swiftlet.client.errors import TooLarge as TooLarge
    from swiftlet.client.errors import TooManyRequests as TooManyRequests
    from swiftlet.client.errors import Unauthorized as Unauthorized
    from swiftlet.client.objects import Reading as Reading
    from swiftlet.client.options import Options as Options
    from swiftlet.client.progress import Progress as Progress
    from swiftlet.client.sync import Client as Client
    from swiftlet.client.sync import ObjectFile as ObjectFile
    from swiftlet.client.values import AccountInfo as AccountInfo
    from swiftlet.client.values import Conditions as Conditions
    from swiftlet.client.values import ContainerInfo as ContainerInfo
    from swiftlet.client.values import Content as Content
    from swiftlet.client.values import Downloaded as Downloaded
    from swiftlet.client.values import Entry as Entry
    from swiftlet.client.values import ObjectInfo as ObjectInfo
    from swiftlet.client.values import Span as Span
    from swiftlet.client.values import Written as Written

_ROOMS: dict[str, str] = {
    "bodies": "Source",
    "client": "AsyncClient Name",
    "credentials": "ApplicationCredential Catalog Credentials KeystoneName KeystonePassword KeystoneToken "
    "MountedSecret Token V1 find_credentials",
    "errors": "BadRequest ChecksumMismatch ClientError ConfigurationError Conflict ConnectionFailed Forbidden "
    "LocalError NotFound NotModified NotRepeatable PreconditionFailed RangeNotSatisfiable Rejected ServerError "
    "StatusError TooLarge TooManyRequests Unauthorized",
    "objects": "Reading",
    "options": "Options",
    "progress": "Progress",
    "sync": "Client ObjectFile",
    "values": "AccountInfo Conditions ContainerInfo Content Downloaded Entry ObjectInfo Span Written",
}
_WHERE = {name: room for room, names in _ROOMS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_WHERE)
