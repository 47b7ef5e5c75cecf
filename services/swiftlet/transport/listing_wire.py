"""JSON forms of rows, totals, listing queries and database states; shared by container servers and their clients.

Rows travel as arrays in a fixed order, timestamps as their 64-bit values. Everything that arrives is checked:
another shape is a `WireError`, a name that no client could have used an `InvalidName`. `docs/wire.md` lists the
requests.

Fault model: a peer may send anything. Sizes of bodies are limited before they are parsed, numbers to what the
databases can hold, names to valid UTF-8 without NUL, unless they begin with one (the proxy's own); unknown fields are
ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias
from urllib.parse import quote

from swiftlet import policy_moves
from swiftlet.boundaries.listings import ListingChange, PageForm
from swiftlet.errors import InvalidName
from swiftlet.model import (
    DIGEST_SIZE,
    AccountInfo,
    Amounts,
    ContainerInfo,
    ContainerRow,
    DatabaseId,
    DatabaseKind,
    DatabaseName,
    DatabaseState,
    ListingQuery,
    ListingRow,
    MetadataBounds,
    MetadataItem,
    ObjectRow,
    Subdir,
)
from swiftlet.policy_moves import PolicyMove
from swiftlet.timestamp import MAX_VALUE, Timestamp
from swiftlet.transport.wire import WireError, array, json_bytes, json_object, number, text, texts, timestamp

MAX_UPDATE_BODY = 4 * 1024 * 1024
"""The largest size in bytes of a request's JSON from object servers and proxies."""
MAX_UPDATE_ROWS = 10_000
"""The largest number of rows in one request."""
MAX_SYNC_BODY = 32 * 1024 * 1024
"""The largest size in bytes of a request's JSON between replicas."""
MAX_DESCRIBED = 64
"""The largest number of containers in one question for descriptions."""
MAX_PARTITION = 0xFFFF_FFFF
"""The highest number of a partition."""
MAX_LISTING = 10_000
"""The largest number of rows in one page of a listing."""
FORM = "form"
"""The query field that asks for a page as text."""
_SENT_ROWS_BYTES = 1_000_000
"""Bytes of rows in one request that we send: as many as a socket takes without holding up the event loop."""
_MAX_STAMP = MAX_VALUE
_OBJECT_ROW = (str, int, int, str, str, bool)
_MAX_POLICY = 0xFFFF
_MAX_POLICIES = 256
"""The largest number of policies in the totals of an account."""
MAX_QUANTITY = 1 << 53
"""The highest size or count in a message."""


def query_text(fields: Mapping[str, str | None]) -> str:
    """Return a percent-encoded query of the fields that are not None."""
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items() if value is not None)


def checked_name(name: object, what: str) -> str:
    """Return a name that a database can hold; WireError, InvalidName."""
    if not isinstance(name, str):
        raise WireError(f"{what} is not text")
    if not name or ("\0" in name and not name.startswith("\0")):
        raise InvalidName(f"{what} is empty or holds a NUL without beginning with one")
    return _encodable(name, what)


def _encodable(value: str, what: str) -> str:
    if value.isascii():
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidName(f"{what} is not valid Unicode") from error
    return value


def _fields(row: object, shape: Sequence[type]) -> list[Any]:
    if not isinstance(row, list) or len(row) < len(shape):
        raise WireError("a row is not an array or too short")
    for value, kind in zip(row, shape, strict=False):
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value <= _MAX_STAMP):
            raise WireError(f"{value!r} in a row is not a {kind.__name__} in its range")
    return row


def _checked(*quantities: int) -> None:
    if max(quantities) > MAX_QUANTITY:
        raise WireError(f"{max(quantities)} in a row is more than any size or count")


def object_row_to_wire(row: ObjectRow) -> list[Any]:
    """Encode a row of an object as `[name, timestamp, size, etag, content type, deleted]`, with timestamps of POSTs if
    any.
    """
    fields = [row.name, row.timestamp.value, row.size, row.etag, row.content_type, row.deleted]
    posts = row.content_type_timestamp.value, row.meta_timestamp.value
    return [*fields, *posts] if any(posts) else fields


def object_row_from_wire(row: object) -> ObjectRow:
    """Decode a row of an object; WireError, InvalidName."""
    if not isinstance(row, list) or tuple(map(type, row[:6])) != _OBJECT_ROW:
        row = _fields(row, _OBJECT_ROW)
    name, stamp, size, etag, content_type, deleted = row[:6]
    if not 0 <= stamp <= _MAX_STAMP or not 0 <= size <= MAX_QUANTITY:
        raise WireError(f"{stamp} or {size} in a row is more than any timestamp or size")
    checked_name(name, "an object's name")
    _encodable(etag, "an ETag")
    found = ObjectRow(name, Timestamp(stamp), size, etag, _encodable(content_type, "a content type"), deleted)
    if len(row) > len(_OBJECT_ROW):
        typed, posted = _fields(row[len(_OBJECT_ROW) :], (int, int))[:2]
        found = replace(found, content_type_timestamp=Timestamp(typed), meta_timestamp=Timestamp(posted))
    return found.plain if deleted or len(row) > len(_OBJECT_ROW) else found


def container_row_to_wire(row: ContainerRow) -> list[Any]:
    """Encode a row of a container as `[name, put, delete, objects, bytes, policy, reported]`."""
    stamps = row.put_timestamp.value, row.delete_timestamp.value
    return [row.name, *stamps, row.object_count, row.bytes_used, row.policy, row.reported.value]


def container_row_from_wire(row: object) -> ContainerRow:
    """Decode a row of a container; WireError, InvalidName."""
    name, put, delete, objects, size, policy, reported, *_ = _fields(row, (str, int, int, int, int, int, int))
    if not put:
        raise WireError("a container's row has no PUT timestamp")
    checked_name(name, "a container's name")
    _checked(objects, size, policy)
    return ContainerRow(name, Timestamp(put), Timestamp(delete), objects, size, policy, Timestamp(reported))


def row_to_wire(row: ObjectRow | ContainerRow) -> list[Any]:
    """Encode a row of either kind."""
    return object_row_to_wire(row) if isinstance(row, ObjectRow) else container_row_to_wire(row)


def rows_bodies(rows: Sequence[ListingRow], name: DatabaseName | None = None) -> Iterator[bytes]:
    """Yield `{"rows": [...]}` with the name, in as many bodies as the limits of requests need; one when there are no
    rows.
    """
    head = b"{" if name is None else json_bytes(name_to_wire(name))[:-1] + b","
    chunk: list[bytes] = []
    size = 0
    for row in rows:
        piece = json_bytes(row_to_wire(row))
        if chunk and (len(chunk) == MAX_UPDATE_ROWS or size + len(piece) > _SENT_ROWS_BYTES):
            yield _rows_body(head, chunk)
            chunk, size = [], 0
        chunk.append(piece)
        size += len(piece) + 1
    yield _rows_body(head, chunk)


def _rows_body(head: bytes, pieces: Sequence[bytes]) -> bytes:
    return head + b'"rows":[' + b",".join(pieces) + b"]}"


def entry_to_wire(entry: ObjectRow | ContainerRow | Subdir) -> list[Any]:
    """Encode an entry of a listing: a row, or `[name]` for a common prefix."""
    return [entry.name] if isinstance(entry, Subdir) else row_to_wire(entry)


def object_entry_from_wire(entry: object) -> ObjectRow | Subdir:
    """Decode an entry of a container's listing."""
    return _subdir(entry) or object_row_from_wire(entry)


def container_entry_from_wire(entry: object) -> ContainerRow | Subdir:
    """Decode an entry of an account's listing."""
    return _subdir(entry) or container_row_from_wire(entry)


def _subdir(entry: object) -> Subdir | None:
    if isinstance(entry, list) and len(entry) == 1:
        return Subdir(checked_name(entry[0], "a common prefix"))
    return None


def container_info_to_wire(info: ContainerInfo) -> dict[str, Any]:
    """Encode totals and metadata of a container."""
    return {
        "account": info.account,
        "container": info.container,
        "put_timestamp": info.put_timestamp.value,
        "created": info.created.value,
        "object_count": info.object_count,
        "bytes_used": info.bytes_used,
        "policy": info.policy,
        "metadata": dict(info.metadata),
        "move": move_to_wire(info.move),
    }


Described: TypeAlias = tuple[int, str, str, bool]
"""The partition, account and name of a container, and whether its totals are to have all rows that were taken."""


def places_to_wire(places: Sequence[Described]) -> dict[str, Any]:
    """Encode a question about the containers at these places."""
    return {"containers": [list(place) for place in places]}


def places_from_wire(fields: Mapping[str, Any]) -> list[Described]:
    """Decode the places that a question is about, 1 to `MAX_DESCRIBED`; WireError, InvalidName."""
    found = array(fields, "containers")
    if not 1 <= len(found) <= MAX_DESCRIBED:
        raise WireError(f"containers has {len(found)} places, not within 1 and {MAX_DESCRIBED}; send more messages")
    return [_place(place) for place in found]


def _place(place: object) -> Described:
    match place:
        case [int() as partition, account, container, bool() as merged] if 0 <= partition <= MAX_PARTITION:
            return partition, checked_name(account, "the account"), checked_name(container, "the container"), merged
    raise WireError("a place of a container is not its partition, account and container, and true or false")


def move_to_wire(move: PolicyMove | None) -> str | None:
    """Encode a container's move between policies."""
    return None if move is None else move.text()


def move_from_wire(fields: Mapping[str, Any]) -> PolicyMove | None:
    """Decode the field `move`, which older servers don't send. Raises WireError."""
    if fields.get("move") is None:
        return None
    try:
        return policy_moves.parse(text(fields, "move"))
    except ValueError as error:
        raise WireError(f"field 'move' is not the state of a move: {error}") from error


def page_to_wire(info: ContainerInfo, text: bytes) -> bytes:
    """Encode a page as text: JSON of totals and metadata, a line feed, and the text as it is."""
    return json_bytes(container_info_to_wire(info)) + b"\n" + text


def page_from_wire(data: bytes) -> tuple[dict[str, Any], bytes | None]:
    """Decode a page as text, or an answer with rows, which contains no line feed; WireError."""
    head, feed, text = data.partition(b"\n")
    return json_object(head), text if feed else None


def container_info_from_wire(fields: Mapping[str, Any]) -> ContainerInfo:
    """Parse what the function above encodes; WireError if a field is missing or wrong."""
    return ContainerInfo(
        account=text(fields, "account"),
        container=text(fields, "container"),
        put_timestamp=timestamp(fields, "put_timestamp"),
        created=timestamp(fields, "created"),
        object_count=number(fields, "object_count"),
        bytes_used=number(fields, "bytes_used"),
        policy=number(fields, "policy"),
        metadata=texts(fields, "metadata"),
        move=move_from_wire(fields),
    )


def account_info_to_wire(info: AccountInfo) -> dict[str, Any]:
    """Encode totals and metadata of an account."""
    return {
        "account": info.account,
        "put_timestamp": info.put_timestamp.value,
        "created": info.created.value,
        "container_count": info.container_count,
        "object_count": info.object_count,
        "bytes_used": info.bytes_used,
        "metadata": dict(info.metadata),
        "policies": [{"policy": policy, **asdict(amounts)} for policy, amounts in info.policies.items()],
    }


def account_info_from_wire(fields: Mapping[str, Any]) -> AccountInfo:
    """Parse what the function above encodes; WireError if a field is missing or wrong."""
    return AccountInfo(
        account=text(fields, "account"),
        put_timestamp=timestamp(fields, "put_timestamp"),
        created=timestamp(fields, "created"),
        container_count=number(fields, "container_count"),
        object_count=number(fields, "object_count"),
        bytes_used=number(fields, "bytes_used"),
        metadata=texts(fields, "metadata"),
        policies=_totals_by_policy(fields),
    )


def _totals_by_policy(fields: Mapping[str, Any]) -> dict[int, Amounts]:
    found = array(fields, "policies")
    if len(found) > _MAX_POLICIES or not all(isinstance(one, dict) for one in found):
        raise WireError(f"policies is not up to {_MAX_POLICIES} objects")
    return {
        policy_from_wire(one, "policy"): Amounts(*(number(one, what) for what in ("containers", "objects", "bytes")))
        for one in found
    }


def listing_query_to_wire(query: ListingQuery) -> dict[str, str | None]:
    """Encode the parameters of a listing as query fields."""
    return {
        "limit": str(query.limit),
        "marker": query.marker or None,
        "end_marker": query.end_marker or None,
        "prefix": query.prefix or None,
        "delimiter": query.delimiter or None,
        "path": query.path,
        "reverse": "1" if query.reverse else None,
    }


def listing_query_from_wire(fields: Mapping[str, str]) -> ListingQuery:
    """Decode the parameters of a listing, with a limit of at most `MAX_LISTING`; WireError."""
    limit = fields.get("limit", str(MAX_LISTING))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10):
        raise WireError(f"limit {limit!r} is not a number")
    return ListingQuery(
        limit=min(int(limit), MAX_LISTING),
        marker=fields.get("marker", ""),
        end_marker=fields.get("end_marker", ""),
        prefix=fields.get("prefix", ""),
        delimiter=fields.get("delimiter", ""),
        path=fields.get("path"),
        reverse=fields.get("reverse") == "1",
    )


def form_from_wire(fields: Mapping[str, str]) -> PageForm | None:
    """Return the form of text in which a page is requested; None for rows. WireError."""
    if FORM not in fields:
        return None
    try:
        return PageForm(fields[FORM])
    except ValueError as error:
        raise WireError(f"{FORM} {fields[FORM]!r} is no form of a page") from error


def metadata_from_wire(fields: Mapping[str, Any]) -> dict[str, str]:
    """Decode metadata items of a PUT or POST; WireError, InvalidName."""
    items = texts(fields, "metadata")
    for name, value in items.items():
        _encodable(name, "a metadata name")
        _encodable(value, "a metadata value")
    return items


def new_metadata_to_wire(metadata: Mapping[str, str], bounds: MetadataBounds | None) -> dict[str, Any]:
    """Encode metadata items of a PUT or POST, with their bounds."""
    if bounds is None:
        return {"metadata": dict(metadata)}
    shown = {"prefix": bounds.prefix, "items": bounds.items, "size_bytes": bounds.size_bytes}
    return {"metadata": dict(metadata), "bounds": shown}


def bounds_from_wire(fields: Mapping[str, Any]) -> MetadataBounds | None:
    """Decode the bounds of metadata after a PUT or POST; None when there are none."""
    found = fields.get("bounds")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise WireError("field 'bounds' is not an object")
    prefix = _encodable(text(found, "prefix"), "a prefix of metadata names")
    return MetadataBounds(prefix, number(found, "items"), number(found, "size_bytes"))


def policy_from_wire(fields: Mapping[str, Any], name: str) -> int:
    """Return a field that must be the index of a storage policy; WireError."""
    policy = number(fields, name)
    if policy > _MAX_POLICY:
        raise WireError(f"field {name!r} is not the index of a storage policy")
    return policy


def change_from_wire(fields: Mapping[str, Any]) -> tuple[str, int]:
    """Return the epoch and the number of the last change that the asker knows; WireError."""
    return text(fields, "epoch"), number(fields, "number")


def changes_to_wire(epoch: str, number: int, containers: Sequence[str] | None) -> dict[str, Any]:
    """Return the answer about changes; `containers` has digests in hexadecimal, None where they are not known."""
    return {"epoch": epoch, "number": number, "containers": containers}


def changes_from_wire(fields: Mapping[str, Any]) -> ListingChange:
    """Return an answer about changes; WireError."""
    containers = None if fields.get("containers") is None else [_digest(one) for one in array(fields, "containers")]
    return ListingChange(text(fields, "epoch"), number(fields, "number"), containers)


def _digest(value: object) -> bytes:
    if not isinstance(value, str) or len(value) != 2 * DIGEST_SIZE:
        raise WireError("the digest of a container is missing or has another length")
    try:
        return bytes.fromhex(value)
    except ValueError as error:
        raise WireError("the digest of a container is not hexadecimal") from error


def position_from_wire(fields: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a name or empty; WireError, InvalidName."""
    return _encodable(text(fields, name), name)


def id_to_wire(id: DatabaseId) -> str:
    """Return a database's path in URLs: `containers/12/0123...`."""
    return str(id)


def id_from_wire(kind: str, partition: str, digest: str) -> DatabaseId:
    """Decode the id of a database from the three parts of its path; WireError."""
    try:
        found = DatabaseId(DatabaseKind(kind), int(partition), bytes.fromhex(digest))
    except ValueError as error:
        raise WireError(f"{kind}/{partition}/{digest} is not the id of a database") from error
    if len(found.digest) != DIGEST_SIZE or not 0 <= found.partition < 1 << 32:
        raise WireError(f"{kind}/{partition}/{digest} is not the id of a database")
    return found


def id_from_text(value: object) -> DatabaseId:
    """Return the database with this path in URLs. Raises WireError."""
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 3:
        raise WireError(f"{value!r} is not the id of a database")
    return id_from_wire(*parts)


def name_to_wire(name: DatabaseName) -> dict[str, Any]:
    """Encode the name of a database."""
    return {"account": name.account, "container": name.container}


def name_from_wire(fields: Mapping[str, Any]) -> DatabaseName:
    """Decode the name of a database. Raises WireError and InvalidName."""
    account = checked_name(fields.get("account"), "the account")
    container = fields.get("container")
    return DatabaseName(account, None if container is None else checked_name(container, "the container"))


def state_to_wire(state: DatabaseState) -> dict[str, Any]:
    """Encode the state of a database: everything except its rows."""
    return {
        **name_to_wire(state.name),
        "created": state.created.value,
        "put_timestamp": state.put_timestamp.value,
        "delete_timestamp": state.delete_timestamp.value,
        "policy": state.policy,
        "metadata": [[item.name, item.timestamp.value, item.value] for item in state.metadata],
        "rows_digest": state.rows_digest.hex(),
    }


def state_from_wire(fields: Mapping[str, Any]) -> DatabaseState:
    """Decode the state of a database. Raises WireError and InvalidName."""
    return DatabaseState(
        name=name_from_wire(fields),
        created=timestamp(fields, "created"),
        put_timestamp=timestamp(fields, "put_timestamp"),
        delete_timestamp=timestamp(fields, "delete_timestamp"),
        policy=policy_from_wire(fields, "policy"),
        metadata=tuple(_item(item) for item in array(fields, "metadata")),
        rows_digest=digest_from_wire(fields, "rows_digest"),
    )


def _item(item: object) -> MetadataItem:
    name, stamp, value, *_ = _fields(item, (str, int, str))
    return MetadataItem(_encodable(name, "a metadata name"), Timestamp(stamp), _encodable(value, "a metadata value"))


def page_digest_to_wire(upto: str, digest: bytes) -> list[str]:
    """Encode the end of a page of sync and its set hash."""
    return [upto, digest.hex()]


def page_digest_from_wire(value: object) -> tuple[str, bytes]:
    """Parse what the function above encodes; WireError if a field is missing or wrong."""
    upto, digest, *_ = _fields(value, (str, str))
    return _encodable(upto, "the end of a page"), digest_from_wire({"digest": digest}, "digest")


def digest_from_wire(fields: Mapping[str, Any], name: str) -> bytes:
    """Return a field that must be 16 bytes in hex; WireError."""
    try:
        digest = bytes.fromhex(text(fields, name))
    except ValueError as error:
        raise WireError(f"field {name!r} is not hex") from error
    if len(digest) != DIGEST_SIZE:
        raise WireError(f"field {name!r} does not have {DIGEST_SIZE} bytes")
    return digest
