"""Turns the answers of devices to a write into the caller's answer."""

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
    """Whether most container replicas answered that the container does not exist; then the caller undoes the write."""
    overtaken: bool = False
    """Whether there was something newer already, so that this write counts as having happened just before."""


def row_of(path: Path, record: PutRecord, footer: PutFooter) -> ObjectRow:
    """Return the listing row of a new version."""
    return ObjectRow(path.obj or "", record.timestamp, footer.size, footer.etag, record.content_type)


def refusal(outcome: Outcome[T], quorum: int, what: str) -> SwiftletError:
    """Return the error of a write without a quorum of successes: the decision of most devices, or Unavailable."""
    superseded = outcome.refused_by(Superseded)
    if superseded and len(superseded) + len(outcome.replies) >= quorum:
        return max(superseded, key=lambda error: error.timestamp)
    absent = outcome.refused_by(NotFound)
    # Not finding an object where a write may have been missed counts only if all answered and no device has it.
    silent = 0 if outcome.replies or outcome.troubles else len(outcome.unproved)
    if len(absent) + silent >= quorum:
        return NotFound(f"{what} does not exist", max((e.timestamp for e in absent if e.timestamp), default=None))
    others = [e for _, e in outcome.refusals if not isinstance(e, Superseded | NotFound)]
    if len(others) >= quorum:
        return others[0]
    return outcome.unavailable(what, quorum)


def acknowledged(outcome: Outcome[WriteReply], quorum: int, what: str) -> bool:
    """Return whether there was an object to write to, for a write with its quorum of successes.

    Raises the error of the write otherwise.
    """
    if len(outcome.replies) < quorum:
        raise refusal(outcome, quorum, what)
    return any(reply.existed for _, _, reply in outcome.replies)
