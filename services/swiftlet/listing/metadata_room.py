"""Whether an account or container has room for the metadata that a request brings. Pure.

What counts is what there is after the merge, whichever requests it came with. A request that brings nothing more is
taken even where there is too much, as there may be after replicas that took different requests were brought together.
"""

from __future__ import annotations

from collections.abc import Mapping

from swiftlet.errors import TooMuchMetadata
from swiftlet.model import MetadataBounds, MetadataItem

Items = Mapping[str, MetadataItem]


def check_room(before: Items, after: Items, bounds: MetadataBounds) -> None:
    """TooMuchMetadata when a request that turns `before` into `after` brings more than the bounds allow."""
    had, has = _amounts(before, bounds.prefix), _amounts(after, bounds.prefix)
    most = (bounds.items, bounds.size_bytes, bounds.remembered)
    words = (
        f"Too many metadata items; max {bounds.items}",
        f"Total metadata too large; max {bounds.size_bytes}",
        f"Too many names of metadata, with those removed lately; max {bounds.remembered}",
    )
    for old, new, limit, reason in zip(had, has, most, words, strict=True):
        if new > limit and new > old:
            raise TooMuchMetadata(reason)


def _amounts(items: Items, prefix: str) -> tuple[int, int, int]:
    """Items that are there, their bytes, and items with those that were removed."""
    ours = [item for item in items.values() if item.name.startswith(prefix)]
    live = [item for item in ours if item.value]
    size = sum(len(item.name.encode()) - len(prefix) + len(item.value.encode()) for item in live)
    return len(live), size, len(ours)
