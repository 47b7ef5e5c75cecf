"""The result of a session, which is filled in while the session goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from swiftlet.errors import NodeError, SwiftletError, Unavailable
from swiftlet.sync.session.effects import HandoffReturned, Repaired
from swiftlet.transport.wire import WireError


class Outdated(Unavailable):
    """There is a newer ring than the one that a session began under."""


@dataclass(slots=True)
class SessionResult:
    """The outcome of a session: what it compared, moved and proved, and how it ended."""

    proved: set[int] = field(default_factory=set)
    repaired: dict[int, Repaired | None] = field(default_factory=dict)
    """Partitions that were worked on; None where nothing is left to do."""
    returned: HandoffReturned | None = None
    """The outcome for a handoff's partition, for a session that returns one."""
    pulled: Counter[int] = field(default_factory=Counter)
    """Objects that came here, by partition."""
    lacking: Counter[int] = field(default_factory=Counter)
    """Objects known to be lacking here still, by partition."""
    pushed: Counter[int] = field(default_factory=Counter)
    """Objects that went, by peer."""
    unsent: Counter[int] = field(default_factory=Counter)
    """Objects that a peer would not have."""
    troubled: set[int] = field(default_factory=set)
    """Peers that failed on the way, or are no primaries in their own eyes."""
    error: SwiftletError | None = None
    """The error that ended the session early."""


def as_node_error(error: SwiftletError) -> SwiftletError:
    """A peer's trouble, whatever ails it, told from the own device's."""
    return error if isinstance(error, NodeError | WireError) else NodeError(str(error))
