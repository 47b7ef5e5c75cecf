"""Which requests may change who may read where."""

from __future__ import annotations

from dataclasses import dataclass

from swiftlet.errors import InvalidName, NameTooLong
from swiftlet.names import parse_path

_READING = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Grants that end: those in one account, or all."""

    account: str | None


def withdrawal(method: str, raw_path: str, query: str) -> Withdrawal | None:
    """What a request that has been answered may have changed; None when no grant rests on it.

    Objects are not remembered. With a query a request about an object's path may be about more than that.
    """
    if method in _READING:
        return None
    version, slash, rest = raw_path[1:].partition("/")
    if version not in {"v1", "v1.0"}:
        return Withdrawal(None)
    try:
        path = parse_path(slash + rest)
    except (InvalidName, NameTooLong):
        return None
    return None if path.obj is not None and not query else Withdrawal(path.account)
