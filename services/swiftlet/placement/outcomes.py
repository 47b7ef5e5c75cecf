"""From what devices answered to what the caller is told of a write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from swiftlet.boundaries.objects import WriteReply
from swiftlet.errors import NotFound, Superseded, SwiftletError
from swiftlet.model import ObjectRow, PutFooter, PutRecord
from swiftlet.names import Path
from swiftlet.placement.fanout import Outcome

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """A write that reached its quorum."""

    existed: bool
    container_missing: bool
    """Whether most container replicas said that the container is gone: the caller undoes the write."""
    overtaken: bool = False
    """Whether something newer was there already, so that this counts as having happened just before."""


def row_of(path: Path, record: PutRecord, footer: PutFooter) -> ObjectRow:
    """The listing row of a new version."""
    return ObjectRow(path.obj or "", record.timestamp, footer.size, footer.etag, record.content_type)


def refusal(outcome: Outcome[T], quorum: int, what: str) -> SwiftletError:
    """The error of a write without a quorum of successes: what most devices decided, or Unavailable."""
    superseded = outcome.refused_by(Superseded)
    if superseded and len(superseded) + len(outcome.replies) >= quorum:
        return max(superseded, key=lambda error: error.timestamp)
    absent = outcome.refused_by(NotFound)
    # That a device has nothing which may have missed a write counts only if all have answered, and none has anything.
    silent = 0 if outcome.replies or outcome.troubles else len(outcome.unproved)
    if len(absent) + silent >= quorum:
        return NotFound(f"{what} does not exist", max((e.timestamp for e in absent if e.timestamp), default=None))
    others = [e for _, e in outcome.refusals if not isinstance(e, Superseded | NotFound)]
    if len(others) >= quorum:
        return others[0]
    return outcome.unavailable(what, quorum)


def acknowledged(outcome: Outcome[WriteReply], quorum: int, what: str) -> bool:
    """Whether there was an object, of a write with its quorum of successes; or the error that says why it has none."""
    if len(outcome.replies) < quorum:
        raise refusal(outcome, quorum, what)
    return any(reply.existed for _, _, reply in outcome.replies)
