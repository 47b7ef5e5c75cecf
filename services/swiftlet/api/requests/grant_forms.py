"""What a client may ask of `/v1/grants`: one JSON object, whose fields are checked here, each by its name."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from swiftlet.api.http.problems import ApiError
from swiftlet.api.requests.json_fields import MAX_NUMBER, json_fields, name_field, number_field, text_field
from swiftlet.model import Amounts
from swiftlet.names import MAX_ACCOUNT_NAME, MAX_CONTAINER_NAME, MAX_OBJECT_NAME

MAX_BODY = 16 * 1024
"""The largest size in bytes of a request."""
MAX_PARSED = 256
"""Requests whose meaning is remembered: the processes of a job all begin with the same one. 4 MiB at most."""
OPERATIONS = {"get": 1, "head": 2, "put": 4, "post": 8, "delete": 16}
"""The operations, and the bits that stand for them in a grant."""
METHODS = {"get": "GET", "head": "HEAD", "put": "PUT", "post": "POST", "delete": "DELETE"}
WRITING = frozenset({"put", "post", "delete"})
WANTED_OBJECTS, WANTED_BYTES = 1000, 1 << 30
"""What is held of a quota if the client does not say how much it is going to store."""
_FIELDS = frozenset(
    {"account", "container", "prefix", "object", "operations", "life_s", "max_size", "objects", "bytes", "session"}
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client wants to do."""

    account: str
    container: str
    prefix: str | None
    obj: str | None
    operations: frozenset[str]
    life_s: int | None
    """Seconds for which it wants to do it; None: as long as is usual."""
    max_size: int
    """Bytes of the largest object that it is going to store."""
    amounts: Amounts
    """How many objects it is going to store, and their bytes, where a quota applies."""
    session: bytes | None
    """A session that it has already."""

    @property
    def bits(self) -> int:
        """The operations as bits."""
        return sum(OPERATIONS[name] for name in self.operations)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of the API that the operations are."""
        return tuple(METHODS[name] for name in sorted(self.operations))

    @property
    def writes(self) -> bool:
        """Whether anything is going to be changed."""
        return bool(self.operations & WRITING)


@lru_cache(maxsize=MAX_PARSED)
def parse(body: bytes) -> Asked:
    """Return what a request asks for. Raises ApiError 400 that names the field which is wrong."""
    fields = json_fields(body, _FIELDS, "a request for a grant")
    prefix, obj = text_field(fields, "prefix", MAX_OBJECT_NAME), text_field(fields, "object", MAX_OBJECT_NAME)
    if prefix is not None and obj is not None:
        raise ApiError(400, "prefix and object exclude each other")
    return Asked(
        name_field(fields, "account", MAX_ACCOUNT_NAME),
        name_field(fields, "container", MAX_CONTAINER_NAME),
        prefix,
        obj,
        _operations(fields),
        None if "life_s" not in fields else number_field(fields, "life_s", 1, 0),
        number_field(fields, "max_size", 0, MAX_NUMBER),
        Amounts(0, number_field(fields, "objects", 1, WANTED_OBJECTS), number_field(fields, "bytes", 0, WANTED_BYTES)),
        _session(fields),
    )


def _operations(fields: Mapping[str, object]) -> frozenset[str]:
    wanted = fields.get("operations")
    if not isinstance(wanted, list) or not wanted or any(name not in OPERATIONS for name in map(str, wanted)):
        raise ApiError(400, f"operations: a list of some of {', '.join(OPERATIONS)} is needed")
    return frozenset(map(str, wanted))


def _session(fields: Mapping[str, object]) -> bytes | None:
    text = fields.get("session")
    if text is None:
        return None
    try:
        if isinstance(text, str) and len(text) <= 64:
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise ApiError(400, "session: the text that an earlier answer had is needed")
