"""The limits that count for an account and for a container: the smallest of its level's and of those in headers.

The headers are OpenStack Swift's: `X-Account-Quota-Bytes`, `X-Account-Quota-Count` and the older
`X-Account-Meta-Quota-Bytes` of accounts, `X-Container-Meta-Quota-Bytes` and `-Count` of containers.
https://docs.openstack.org/swift/latest/middleware.html#module-swift.common.middleware.account_quotas
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swiftlet.model import Bounds, Excess
from swiftlet.quota.limits import Limits

ACCOUNT_LEVEL = "X-Account-Meta-Quota"
ACCOUNT_COUNT = "X-Account-Quota-Count"
ACCOUNT_BYTES = ("X-Account-Quota-Bytes", "X-Account-Meta-Quota-Bytes")
CONTAINER_COUNT = "X-Container-Meta-Quota-Count"
CONTAINER_BYTES = "X-Container-Meta-Quota-Bytes"
MAX_DIGITS = 18
"""The largest number of digits of a limit in a header."""

_Limit = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class Named:
    """Bounds, and the name that each of them has in messages to users."""

    bounds: Bounds
    names: Mapping[str, str]

    @property
    def unlimited(self) -> bool:
        """Whether there is no bound at all."""
        return self.bounds == Bounds()

    def explain(self, excess: Excess, where: str) -> str:
        """Return a sentence that names the limit, how much is used, and how much was requested."""
        name = self.names.get(excess.what, excess.what)
        refused = "Quota exceeded" if excess.what == "containers" else "Upload exceeds quota"
        return (
            f"{refused}. {where} may hold {excess.most} {excess.what} ({name}), "
            f"{excess.used} are used, {excess.asked} more were asked for"
        )


def parse_limit(text: str) -> int | None:
    """Return the limit in a header; None when it is not a number."""
    good = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    return int(text) if good else None


def account_bounds(limits: Limits, metadata: Mapping[str, str]) -> Named:
    """Return the limits of all containers of an account together."""
    counts = [(limits.account_object_count, f"account_object_count of level {limits.level}")]
    sizes = [(limits.account_usage_bytes, f"account_usage_bytes of level {limits.level}")]
    return _named(
        objects=[*counts, *_headers(metadata, [ACCOUNT_COUNT])], bytes=[*sizes, *_headers(metadata, ACCOUNT_BYTES)]
    )


def container_bounds(limits: Limits, metadata: Mapping[str, str]) -> Named:
    """Return the limits of one container."""
    counts = [(limits.object_count, f"object_count of level {limits.level}")]
    sizes = [(limits.container_usage_bytes, f"container_usage_bytes of level {limits.level}")]
    return _named(
        objects=[*counts, *_headers(metadata, [CONTAINER_COUNT])],
        bytes=[*sizes, *_headers(metadata, [CONTAINER_BYTES])],
    )


def containers_bounds(limits: Limits) -> Named:
    """Return the limit of the number of containers of an account."""
    return _named(containers=[(limits.container_count, f"container_count of level {limits.level}")])


def _headers(metadata: Mapping[str, str], names: Iterable[str]) -> list[_Limit]:
    return [(parse_limit(metadata.get(name, "")), name) for name in names]


def _named(**candidates: list[_Limit]) -> Named:
    given = {what: [(most, name) for most, name in ones if most is not None] for what, ones in candidates.items()}
    smallest = {what: min(ones) for what, ones in given.items() if ones}
    return Named(
        Bounds(**{what: most for what, (most, _) in smallest.items()}),
        {what: name for what, (_, name) in smallest.items()},
    )
