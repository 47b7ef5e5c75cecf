"""Metadata in headers: which ones are kept, and their published limits.

https://docs.openstack.org/api-ref/object-store/ (create or update metadata); limits as in `/info`.
"""

from __future__ import annotations

from collections.abc import Mapping

from swiftlet.api.http.problems import ApiError
from swiftlet.model import MetadataBounds
from swiftlet.settings.sections import LimitsSection
from swiftlet.web.raw_heads import plain_name

OBJECT_META = "X-Object-Meta-"
CONTAINER_META = "X-Container-Meta-"
ACCOUNT_META = "X-Account-Meta-"
CONTAINER_SYSMETA = "X-Container-Sysmeta-"
"""The prefix of the proxy's own metadata of containers, which clients neither see nor set."""

OBJECT_HEADERS = frozenset(
    {
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Cache-Control",
        "Expires",
        "X-Object-Manifest",
        "X-Robots-Tag",
    }
)
"""Headers kept with an object in addition to its own metadata and returned unchanged."""

_UNSUPPORTED = frozenset(
    {
        "X-Container-Rfc-Compliant-Etags",
        "X-Account-Rfc-Compliant-Etags",
    }
)


_META = (
    OBJECT_META,
    CONTAINER_META,
    ACCOUNT_META,
    "X-Remove-Container-Meta-",
    "X-Remove-Account-Meta-",
)


def canonical(name: str) -> str:
    """Return a header's name in the spelling that the API shows: `X-Object-Meta-Color`.

    Underscores in names of metadata become hyphens, as in the reference (metadata header syntax); in those of other
    headers they stay, so that `X_Object_Manifest` is no other way to say `X-Object-Manifest`.
    """
    try:
        plain = plain_name(name)
    except UnicodeDecodeError as error:
        raise ApiError(400, "Metadata must be valid UTF-8") from error
    full = "-".join(part.capitalize() for part in plain.split("-"))
    return canonical(full.replace("_", "-")) if "_" in full and full.startswith(_META) else full


def refuse_unsupported(headers: Mapping[str, str], synced: bool = False) -> None:
    """Raise 501 for features that would otherwise be silently ignored though the client relies on them.

    An empty value asks for no feature. Only container sync (`synced`) may store a manifest in its stored form.
    """
    for name, value in headers.items():
        full = canonical(name)
        if full in _UNSUPPORTED and value.strip():
            raise ApiError(501, f"{full} is not supported")
        if full == "X-Static-Large-Object" and not synced:
            raise ApiError(
                400,
                f"{full} is a reserved header. To create a static large object add query param multipart-manifest=put.",
            )


def collect(headers: Mapping[str, str], prefix: str, limits: LimitsSection) -> dict[str, str]:
    """Return the items under a prefix by their full canonical names, checked against the limits; 400 names the item.

    For accounts and containers an empty value, or `X-Remove-...`, removes an item: it is returned as "". For objects,
    whose metadata every request replaces, an empty value is an ordinary value, and `X-Remove-...` is ignored.
    """
    items: dict[str, str] = {}
    remove = "X-Remove-" + prefix.removeprefix("X-")
    for name, value in headers.items():
        full = canonical(name)
        if full.startswith(prefix):
            items[full] = value.strip()
        elif full.startswith(remove) and prefix != OBJECT_META:
            items[prefix + full[len(remove) :]] = ""
    _check(items, prefix, limits)
    return items


def _check(items: Mapping[str, str], prefix: str, limits: LimitsSection) -> None:
    total = 0
    for full, value in items.items():
        name_size = len(full.encode()) - len(prefix)
        shown = prefix.lower() + full[len(prefix) :]
        value_size = utf8_size(full, value)
        if not name_size:
            raise ApiError(400, "Metadata name cannot be empty")
        if name_size > limits.max_meta_name_length:
            raise ApiError(400, f"Metadata name too long: {shown}")
        if value_size > limits.max_meta_value_length:
            raise ApiError(400, f"Metadata value longer than {limits.max_meta_value_length}: {shown}")
        total += name_size + value_size
    if len(items) > limits.max_meta_count:
        raise ApiError(400, f"Too many metadata items; max {limits.max_meta_count}")
    if total > limits.max_meta_overall_size:
        raise ApiError(400, f"Total metadata too large; max {limits.max_meta_overall_size}")


def bounds_of(prefix: str, limits: LimitsSection) -> MetadataBounds:
    """Return how much metadata an account or container may have under a prefix, including earlier requests'."""
    return MetadataBounds(prefix, limits.max_meta_count, limits.max_meta_overall_size)


def check_object_items(metadata: Mapping[str, str], limits: LimitsSection) -> None:
    """Raise 400 when an object's own items, wherever they came from, exceed the limits."""
    _check({name: value for name, value in metadata.items() if name.startswith(OBJECT_META)}, OBJECT_META, limits)


def utf8_size(name: str, value: str) -> int:
    """Return the bytes of name and value in UTF-8; 400 for invalid text."""
    try:
        return len(value.encode("utf-8"))
    except UnicodeEncodeError as error:
        shown = "Metadata" if name.startswith(_META) else name
        raise ApiError(400, f"{shown} must be valid UTF-8") from error


def object_metadata(headers: Mapping[str, str], limits: LimitsSection) -> dict[str, str]:
    """Return everything that a PUT or POST of an object keeps: its own metadata and the well-known headers."""
    items = collect(headers, OBJECT_META, limits)
    for name, value in headers.items():
        full = canonical(name)
        if full in OBJECT_HEADERS and value:
            utf8_size(full, value)
            items[full] = value
    return items
