"""Manifests of static large objects: as clients send them, as they are stored, and as they are shown. Pure.

https://docs.openstack.org/swift/latest/overview_large_objects.html (static large objects).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from swiftlet.api.http.manifest_json import load_list
from swiftlet.api.http.problems import ApiError
from swiftlet.api.http.ranges import RangeSpec, parse_range
from swiftlet.errors import InvalidName
from swiftlet.names import Path, parse_path
from swiftlet.segments import Layout, etag_of, segment_of
from swiftlet.settings.sections import LimitsSection
from swiftlet.timestamp import Timestamp

_OPTIONAL = frozenset({"etag", "size_bytes", "range"})
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
_STORED_RANGE = re.compile(r"([0-9]{1,19})-([0-9]{1,19})", re.ASCII)
MAX_ERRORS = 100
"""The largest number of invalid entries that are reported; of further ones the report has only the number."""
MAX_LARGE_OBJECT = 1 << 53
"""The largest size in bytes of one static large object: 8 PiB, the largest whole number that every reader of JSON keeps
exactly. Nested manifests reach it with few bytes of their own, and the sums of listings have to hold many of them.
"""
_MAX_ERROR = 1000
"""The largest number of characters of an entry's error."""
_MAX_RANGE = 64
_MAX_PATH = 8192
"""The largest number of characters of a path that are considered; no name is so long."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One segment as the client asks for it: an object with its conditions, or data."""

    path: Path | None = None
    etag: str | None = None
    size: int | None = None
    range: RangeSpec | None = None
    data: bytes | None = None
    written: str = ""
    """The path as the client wrote it, with or without a leading slash, for reports."""


@dataclass(frozen=True, slots=True)
class Found:
    """The object of a segment: entity tag unquoted, size in bytes, and whether it is a manifest itself."""

    etag: str
    size: int
    content_type: str
    modified: Timestamp
    nested: bool = False


class _Wrong(Exception):
    """An entry is invalid; the text says why."""


def parse_manifest(raw: bytes, own: Path, limits: LimitsSection) -> list[Wanted]:
    """Return a client's manifest for the object `own`; 400 lists what is wrong, 413 for too many segments."""
    backed, inline = limits.slo_max_manifest_segments, limits.slo_max_inline_segments
    entries = load_list(raw, backed + inline, f"Number of segments must be <= {backed + inline}")
    wanted, wrong = [], []
    for index, entry in enumerate(entries):
        try:
            wanted.append(_entry(entry, own, limits, index == len(entries) - 1))
        except _Wrong as error:
            wrong.append(f"Index {index}: {error}"[:_MAX_ERROR])
    if wanted and not wrong and all(one.path is None for one in wanted):
        wrong.append("Inline data segments require at least one object-backed segment.")
    if len(wrong) > MAX_ERRORS:
        wrong[MAX_ERRORS:] = [f"and {len(wrong) - MAX_ERRORS} more entries are wrong"]
    if wrong:
        raise ApiError(400, "\n".join(wrong))
    objects = sum(one.path is not None for one in wanted)
    if objects > backed:
        raise ApiError(413, f"Number of object-backed segments must be <= {backed}")
    if len(wanted) - objects > inline:
        raise ApiError(413, f"Number of inline data segments must be <= {inline}")
    return wanted


def _entry(entry: object, own: Path, limits: LimitsSection, last: bool) -> Wanted:
    if not isinstance(entry, dict):
        raise _Wrong("not a JSON object")
    kind = "path" if "path" in entry else "data" if "data" in entry else None
    if kind is None:
        raise _Wrong("expected keys to include one of 'path' or 'data'")
    extra = sorted(set(entry) - {kind} - (_OPTIONAL if kind == "path" else set()))
    if extra:
        raise _Wrong("extraneous keys " + ", ".join(json.dumps(key[:_MAX_ERROR]) for key in extra[:_MAX_ERROR]))
    return _backed(entry, own, limits, last) if kind == "path" else Wanted(data=_data(entry["data"]))


def _backed(entry: Mapping[str, object], own: Path, limits: LimitsSection, last: bool) -> Wanted:
    path = _path(entry["path"], own.account)
    etag = entry.get("etag")
    if etag is not None and not isinstance(etag, str):
        raise _Wrong('"etag" must be a string or null (if provided)')
    size = _size(entry.get("size_bytes"))
    if size is not None and size < limits.slo_min_segment_size and not last:
        raise _Wrong(too_small(limits))
    if path == own:
        raise _Wrong("manifest must not include itself as a segment")
    spec = _range(entry.get("range"))
    if spec is not None and size is not None and spec.resolve(size) is None:
        raise _Wrong("unsatisfiable range")
    return Wanted(path, None if etag is None else etag.strip('"'), size, spec, written=str(entry["path"]))


def too_small(limits: LimitsSection) -> str:
    """Return the message about a segment below the limit."""
    unit = "byte" if limits.slo_min_segment_size == 1 else "bytes"
    return f"too small; each segment must be at least {limits.slo_min_segment_size} {unit}."


def _path(text: object, account: str) -> Path:
    if not isinstance(text, str):
        raise _Wrong('"path" must be a string')
    if len(text) > _MAX_PATH:
        raise _Wrong("invalid path: it is longer than any name")
    container, _, obj = text.lstrip("/").partition("/")
    if not container or not obj.strip("/"):
        raise _Wrong("path does not refer to an object. Path must be of the form /container/object.")
    try:
        return parse_path(f"/{quote(account)}/{quote(container)}/{quote(obj)}")
    except (InvalidName, UnicodeEncodeError) as error:
        raise _Wrong(f"invalid path: {error}") from error


def _size(value: object) -> int | None:
    if value is None:
        return None
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not _NUMBER.fullmatch(text):
        raise _Wrong("invalid size_bytes")
    return int(text)


def _range(value: object) -> RangeSpec | None:
    if value is None or value == "":
        return None
    specs = parse_range(f"bytes={value}") if isinstance(value, str) and len(value) <= _MAX_RANGE else []
    if not specs:
        raise _Wrong("invalid range")
    if len(specs) > 1:
        raise _Wrong("multiple ranges (only one allowed)")
    return specs[0]


def _data(value: object) -> bytes:
    if not isinstance(value, str) or not _BASE64.fullmatch(value):
        raise _Wrong("data must be valid base64")
    plain = value.rstrip("=")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4))
    except binascii.Error as error:
        raise _Wrong("data must be valid base64") from error
    if not data:
        raise _Wrong("too small; each segment must be at least 1 byte.")
    return data


def entry_of(wanted: Wanted, found: Found | None) -> tuple[dict[str, Any], int]:
    """Return what is stored for a segment, and how many bytes it adds. Its range must be satisfiable."""
    if wanted.data is not None:
        return {"data": base64.b64encode(wanted.data).decode("ascii")}, len(wanted.data)
    assert wanted.path is not None
    assert found is not None
    entry: dict[str, Any] = {
        "name": f"/{wanted.path.container}/{wanted.path.obj}",
        "bytes": found.size,
        "hash": found.etag,
        "content_type": found.content_type,
        "last_modified": found.modified.isoformat,
    }
    span = (0, found.size) if wanted.range is None else wanted.range.resolve(found.size)
    assert span is not None, "checked before"
    if span != (0, found.size):
        entry["range"] = f"{span[0]}-{span[1] - 1}"
    if found.nested:
        entry["sub_slo"] = True
    return entry, span[1] - span[0]


def stored_form(wanted: Sequence[Wanted], found: Mapping[Path, Found]) -> tuple[int, str, bytes]:
    """Return size and entity tag of the whole, and the manifest as it is stored, when all segments are valid."""
    entries, total = [], 0
    for one in wanted:
        entry, length = entry_of(one, None if one.path is None else found[one.path])
        entries.append(entry)
        total += length
    if total > MAX_LARGE_OBJECT:
        raise ApiError(413, f"The large object would have {total} bytes; the limit is {MAX_LARGE_OBJECT} bytes")
    return total, etag_of(entries), json.dumps(entries).encode()


def load_entries(stored: bytes) -> list[dict[str, Any]]:
    """Return the entries of a stored manifest; 500 when it is damaged."""
    try:
        entries = json.loads(stored)
    except (ValueError, RecursionError) as error:
        raise ApiError(500, "Unable to load SLO manifest") from error
    if not isinstance(entries, list):
        raise ApiError(500, "Unable to load SLO manifest")
    return entries


def check_stored(raw: bytes, limits: LimitsSection) -> tuple[int, str]:
    """Return size and entity tag of the whole, by a manifest in the form that other clusters store too; 400 for another
    form.
    """
    limit = limits.slo_max_manifest_segments + limits.slo_max_inline_segments
    entries: list[Mapping[str, Any]] = []
    total = 0
    for index, entry in enumerate(load_list(raw, limit, f"Number of segments must be <= {limit}")):
        try:
            if not isinstance(entry, dict):
                raise _Wrong("not a JSON object")
            total += _stored_length(entry)
            entries.append(entry)
        except _Wrong as error:
            raise ApiError(400, f"Index {index}: {error}") from error
    if total > MAX_LARGE_OBJECT:
        raise ApiError(413, f"The large object would have {total} bytes; the limit is {MAX_LARGE_OBJECT} bytes")
    return total, etag_of(entries)


def _stored_length(entry: Mapping[str, object]) -> int:
    """Return how many bytes a stored entry adds."""
    if "data" in entry:
        return len(_data(entry["data"]))
    name, size, etag = entry.get("name"), entry.get("bytes"), entry.get("hash")
    if not isinstance(name, str) or not isinstance(etag, str):
        raise _Wrong("name and hash of a stored segment must be strings")
    _path(name, "account")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_LARGE_OBJECT:
        raise _Wrong("bytes of a stored segment must be its size")
    match = _STORED_RANGE.fullmatch(str(entry.get("range", f"0-{max(size - 1, 0)}")))
    first, last = (int(match[1]), int(match[2])) if match is not None else (1, 0)
    if not (first <= last < size or size == 0 == last):
        raise _Wrong("unsatisfiable range")
    return last + 1 - first if size else 0


def layout_of(stored: bytes, account: str) -> Layout:
    """Return the segments of a stored manifest."""
    return Layout([segment_of(entry, account) for entry in load_entries(stored)])


def raw_format(entries: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the manifest in the form in which a client sends one."""
    return json.dumps([_raw(entry) for entry in entries], sort_keys=True).encode()


def _raw(entry: Mapping[str, Any]) -> dict[str, Any]:
    if "data" in entry:
        return {"data": entry["data"]}
    shown = {"path": entry["name"], "size_bytes": entry["bytes"], "etag": entry["hash"]}
    return shown | ({"range": entry["range"]} if "range" in entry else {})
