"""Messages about objects: their paths and JSON forms, both directions."""

from __future__ import annotations

from typing import Any

from swiftlet.boundaries.objects import MAX_PLACES, ContainerUpdate, PendingDoubt, UpdateOutcome, Verdict, WriteReply
from swiftlet.model import (
    DIGEST_SIZE,
    Entry,
    Kind,
    ObjectInfo,
    ObjectKey,
    PostRecord,
    PutFooter,
    PutRecord,
)
from swiftlet.timestamp import ZERO, Timestamp
from swiftlet.transport.wire import WireError, array, flag, json_object, number, text, texts, timestamp

PREFIX = "/v1/objects"
"""The path of the object routes; below it is `/<device>[/<policy>[/<partition>[/<suffix or digest>]]]`."""
HEAD_QUERY = "head"
"""`GET <object>?head` answers with the info alone, as JSON; HTTP's own HEAD could not carry it."""
PROVED_QUERY = "proved"
"""`GET <object>?proved=1` is answered Unproved while the partition is in doubt."""
REMOVE = "remove"
"""`POST <object>/remove` forgets a handoff copy."""
JUDGE = "judge"
"""`POST <device>/judge` says what a device has missed and what is proved."""
MAX_SYNC_MESSAGE = 1 << 20
"""Bytes of a sync session's question, and of its answer."""
STREAM_QUERY = "stream"
"""`PUT <object>?stream=1` is answered READY_STATUS before its data is sent."""
READY_STATUS = 200
"""The status that answers a streamed PUT before its data, if the device accepts it. The outcome is the body."""


def device_path(device: str, *parts: object) -> str:
    """The path of a device, or of something on it."""
    return "/".join((PREFIX, device, *map(str, parts)))


def object_path(device: str, key: ObjectKey) -> str:
    """The path of an object on a device."""
    return f"{PREFIX}/{device}/{key.policy}/{key.partition}/{key.hex}"


def parse_index(name: str, value: str) -> int:
    """A policy's or partition's number out of a path."""
    if not (value.isascii() and value.isdigit() and len(value) <= 10):
        raise WireError(f"{name} {value!r} in the path is not a number")
    return int(value)


def parse_digest(value: str) -> bytes:
    """A digest out of a path or message."""
    if len(value) != 2 * DIGEST_SIZE or any(character not in "0123456789abcdef" for character in value):
        raise WireError(f"{value!r} is not a digest of {2 * DIGEST_SIZE} hex digits")
    return bytes.fromhex(value)


def put_json(record: PutRecord, size: int | None, row: ContainerUpdate | None) -> dict[str, Any]:
    """A PUT's record header."""
    return {
        "name": record.name,
        "timestamp": record.timestamp.value,
        "content_type": record.content_type,
        "metadata": dict(record.metadata),
        "sysmeta": dict(record.sysmeta),
        "size": size,
        "row": row_json(row),
    }


def put_from(fields: dict[str, Any]) -> tuple[PutRecord, int | None, ContainerUpdate | None]:
    """The inverse of `put_json`."""
    record = PutRecord(
        text(fields, "name"),
        timestamp(fields, "timestamp"),
        text(fields, "content_type"),
        texts(fields, "metadata"),
        texts(fields, "sysmeta"),
    )
    size = None if fields.get("size") is None else number(fields, "size")
    row = row_from(fields.get("row"))
    if row is not None:
        row_name(record.name, row)
    return record, size, row


def footer_json(footer: PutFooter) -> dict[str, Any]:
    """Encode the footer of a PUT."""
    return {"size": footer.size, "etag": footer.etag, "xxh3": footer.xxh3}


def footer_from(fields: dict[str, Any]) -> PutFooter:
    """The inverse of `footer_json`."""
    return PutFooter(number(fields, "size"), text(fields, "etag"), number(fields, "xxh3"))


def row_json(row: ContainerUpdate | None) -> dict[str, Any] | None:
    """Which container replicas are to get a row."""
    if row is None:
        return None
    return {"account": row.account, "container": row.container, "replicas": list(row.replicas)}


def row_from(value: object) -> ContainerUpdate | None:
    """The inverse of `row_json`."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise WireError("field 'row' is not an object")
    replicas = array(value, "replicas")
    if len(replicas) > 64 or not all(isinstance(index, int) and 0 <= index < 64 for index in replicas):
        raise WireError("field 'replicas' is not a short list of replica indexes")
    return ContainerUpdate(text(value, "account"), text(value, "container"), tuple(replicas))


def row_name(name: str, row: ContainerUpdate) -> str:
    """The object's own name in `/account/container/object`; WireError when it is in another container."""
    prefix = f"/{row.account}/{row.container}/"
    if not name.startswith(prefix):
        raise WireError("the row's container is not the one in the object's name")
    return name[len(prefix) :]


def post_json(record: PostRecord, row: ContainerUpdate | None, proved: bool = False) -> dict[str, Any]:
    """Return the fields of a POST."""
    return {
        "proved": proved,
        "timestamp": record.timestamp.value,
        "metadata": dict(record.metadata),
        "content_type": record.content_type,
        "content_type_timestamp": record.content_type_timestamp.value,
        "row": row_json(row),
    }


def post_from(fields: dict[str, Any]) -> tuple[PostRecord, ContainerUpdate | None, bool]:
    """The inverse of `post_json`."""
    content_type = None if fields.get("content_type") is None else text(fields, "content_type")
    moment = ZERO if content_type is None else timestamp(fields, "content_type_timestamp")
    record = PostRecord(timestamp(fields, "timestamp"), texts(fields, "metadata"), content_type, moment)
    return record, row_from(fields.get("row")), flag(fields, "proved")


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Encode a verdict on the partitions of a device."""
    return {
        "doubted": [list(place) for place in verdict.doubted],
        "proved": [list(place) for place in verdict.proved],
        "epoch": verdict.epoch,
        "whole": verdict.whole,
    }


def verdict_from(fields: dict[str, Any]) -> Verdict:
    """The inverse of `verdict_json`."""
    doubted, proved = _places(fields, "doubted"), _places(fields, "proved")
    if len(doubted) + len(proved) > MAX_PLACES:
        raise WireError(f"more than {MAX_PLACES} partitions at a time")
    return Verdict(doubted, proved, number(fields, "epoch"), flag(fields, "whole"))


def _places(fields: dict[str, Any], name: str) -> list[tuple[int, int]]:
    found = array(fields, name)
    for place in found:
        whole = isinstance(place, list) and len(place) == 2 and all(type(part) is int for part in place)
        if not whole or not (0 <= place[0] < 1 << 16 and 0 <= place[1] < 1 << 32):
            raise WireError(f"field {name!r} is not a list of policies and partitions")
    return [(place[0], place[1]) for place in found]


def doubt_json(pending: tuple[int, float] | None) -> dict[str, Any]:
    """Encode the doubts of a device."""
    return {} if pending is None else {"epoch": pending[0], "age_ms": round(1000 * pending[1])}


def doubt_from(fields: dict[str, Any]) -> PendingDoubt | None:
    """The inverse of `doubt_json`."""
    return PendingDoubt(number(fields, "epoch"), number(fields, "age_ms") / 1000) if fields else None


def delete_json(moment: Timestamp, name: str, row: ContainerUpdate | None) -> dict[str, Any]:
    """Return the fields of a DELETE."""
    return {"timestamp": moment.value, "name": name, "row": row_json(row)}


def delete_from(fields: dict[str, Any]) -> tuple[Timestamp, str, ContainerUpdate | None]:
    """The inverse of `delete_json`."""
    name, row = text(fields, "name"), row_from(fields.get("row"))
    if row is not None:
        row_name(name, row)
    return timestamp(fields, "timestamp"), name, row


def reply_json(reply: WriteReply) -> dict[str, Any]:
    """A write's good outcome."""
    return {"row": reply.row.value, "existed": reply.existed}


def reply_from(fields: dict[str, Any]) -> WriteReply:
    """The inverse of `reply_json`."""
    try:
        outcome = UpdateOutcome(text(fields, "row"))
    except ValueError as error:
        raise WireError(f"unknown row outcome: {error}") from error
    return WriteReply(outcome, flag(fields, "existed"))


def info_json(info: ObjectInfo) -> dict[str, Any]:
    """Encode an object's description."""
    return {
        "name": info.name,
        "timestamp": info.timestamp.value,
        "size": info.size,
        "etag": info.etag,
        "xxh3": info.xxh3,
        "content_type": info.content_type,
        "metadata": dict(info.metadata),
        "sysmeta": dict(info.sysmeta),
        "meta_timestamp": info.meta_timestamp.value,
        "content_type_timestamp": info.content_type_timestamp.value,
    }


def info_from(data: bytes) -> ObjectInfo:
    """The inverse of `info_json`."""
    fields = json_object(data)
    return ObjectInfo(
        text(fields, "name"),
        timestamp(fields, "timestamp"),
        number(fields, "size"),
        text(fields, "etag"),
        number(fields, "xxh3"),
        text(fields, "content_type"),
        texts(fields, "metadata"),
        texts(fields, "sysmeta"),
        timestamp(fields, "meta_timestamp"),
        timestamp(fields, "content_type_timestamp"),
    )


def entry_json(entry: Entry) -> list[Any]:
    """An entry: an array, for there are many of them."""
    return [
        entry.digest.hex(),
        int(entry.kind),
        entry.timestamp.value,
        entry.meta_timestamp.value,
        entry.content_type_timestamp.value,
    ]


def entry_from(value: object) -> Entry:
    """The inverse of `entry_json`."""
    if not isinstance(value, list) or len(value) != 5 or not isinstance(value[0], str):
        raise WireError("an entry is not an array of digest, kind and three timestamps")
    if not all(isinstance(number, int) for number in value[1:]):
        raise WireError("an entry's kind or timestamps are not numbers")
    try:
        times = [Timestamp(moment) for moment in value[2:]]
        return Entry(parse_digest(value[0]), Kind(value[1]), *times)
    except ValueError as error:
        raise WireError(f"an entry is malformed: {error}") from error


def hashes_from(fields: dict[str, Any]) -> dict[str, bytes]:
    """Suffix hashes out of an answer."""
    try:
        return {suffix: bytes.fromhex(value) for suffix, value in texts(fields, "suffixes").items()}
    except ValueError as error:
        raise WireError(f"a suffix hash is not hex: {error}") from error


def numbers_from(fields: dict[str, Any], name: str) -> list[int]:
    """An array of numbers out of an answer."""
    values = array(fields, name)
    if not all(isinstance(value, int) for value in values):
        raise WireError(f"field {name!r} is not an array of numbers")
    return values
