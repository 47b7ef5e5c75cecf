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
    """The partitions that were worked on, with what is left to do; None where nothing is left."""
    returned: HandoffReturned | None = None
    """The report on a handoff's partition, for a session that returns one."""
    pulled: Counter[int] = field(default_factory=Counter)
    """How many objects came here, by partition."""
    lacking: Counter[int] = field(default_factory=Counter)
    """How many objects are known to be still lacking here, by partition."""
    pushed: Counter[int] = field(default_factory=Counter)
    """How many objects were sent, by peer."""
    unsent: Counter[int] = field(default_factory=Counter)
    """How many objects a peer did not take, by peer."""
    troubled: set[int] = field(default_factory=set)
    """Peers that failed during the session, or whose own ring does not name them as primaries."""
    error: SwiftletError | None = None
    """The error that ended the session early."""


def as_node_error(error: SwiftletError) -> SwiftletError:
    """Return the error as one of the peer, so that it can be told from an error of the own device."""
    return error if isinstance(error, NodeError | WireError) else NodeError(str(error))
