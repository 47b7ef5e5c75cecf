"""Which requests may change who may read where, and how grants are ended early."""

from __future__ import annotations

from dataclasses import dataclass

from swiftlet_native import Front

from swiftlet.errors import InvalidName, NameTooLong
from swiftlet.names import parse_path

_READING = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The grants to end: those in one account, or all."""

    account: str | None


def withdrawal(method: str, raw_path: str, query: str) -> Withdrawal | None:
    """Return what a request that has been answered may have changed; None when no grant rests on that.

    Objects are not remembered. With a query a request about an object's path may be about more than the object.
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


class Withdrawals:
    """Ends the grants of one process early. The API reports its changes; the front looks at `count`."""

    def __init__(self) -> None:
        """Begin without a front: nothing has been granted."""
        self._front: Front | None = None
        self.count = 0
        """The number of withdrawals: a decision is not used if this changed while it was made."""

    def begin(self, front: Front) -> None:
        """Withdraw grants of this front from now on."""
        self._front = front

    def end(self) -> None:
        """Forget the front, which is closed."""
        self._front = None

    def withdraw(self, account: str | None) -> None:
        """End all grants in an account, or all, and make decisions in progress not count."""
        self.count += 1
        if self._front is not None:
            self._front.withdraw(None if account is None else account.encode())
