"""What listings tell of links: where they lead, and of an object that has versions what its current one is."""

from __future__ import annotations

from swiftlet.api.content_types import LinkMark
from swiftlet.api.reserved import version_of

LINK_FIELDS = frozenset({"slo_etag", "symlink_path", "symlink_etag", "symlink_bytes", "version_symlink"})
"""Only in JSON."""


def link_fields(mark: LinkMark) -> dict[str, object]:
    """Fields of a link's row beside or instead of the usual ones.

    A client's link shows its own size and entity tag, an object with versions those of its current version.
    """
    shown: dict[str, object] = {} if mark.slo_etag is None else {"slo_etag": f'"{mark.slo_etag}"'}
    found = version_of(mark.target)
    if found is not None:
        path = f"/v1{found[0].quoted}?version-id={found[1].internal}"
        return shown | {"hash": mark.etag, "bytes": mark.size, "symlink_path": path, "version_symlink": True}
    shown["symlink_path"] = f"/v1{mark.target.quoted}"
    if mark.etag is not None:
        shown |= {"symlink_etag": mark.etag, "symlink_bytes": mark.size}
    return shown
