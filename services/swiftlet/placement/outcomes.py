"""Turns the answers of devices to a write into the caller's answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from swiftlet.boundaries.objects import WriteReply
from swiftlet.errors import NotFound, Superseded, SwiftletError
from swiftlet.model import ObjectRow, PutFooter, PutRecord
from swiftlet.names import Path
from swiftlet.placement.fanout import Outcome
from swiftlet.placement.quorums import Quorum
from swiftlet.ring.model import Device

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


def refusal(outcome: Outcome[T], quorum: Quorum, what: str, live: Sequence[Device] = ()) -> SwiftletError:
    """Return the error of a write without a quorum of successes: the decision of most devices, or Unavailable.

    `live` are devices that have not refused it yet, and are asked no more.
    """
    superseded = outcome.refused_by(Superseded)
    if superseded and quorum.met([*outcome.done, *_refusing(outcome, lambda error: isinstance(error, Superseded))]):
        return max(superseded, key=lambda error: error.timestamp)
    absent = outcome.refused_by(NotFound)
    # Not finding an object where a write may have been missed counts only if all answered and no device has it.
    silent = 0 if outcome.replies or outcome.troubles else len(outcome.unproved)
    if len(absent) + silent >= quorum.count:
        return NotFound(f"{what} does not exist", max((e.timestamp for e in absent if e.timestamp), default=None))
    others = [e for _, e in outcome.refusals if not isinstance(e, Superseded | NotFound)]
    if others and quorum.met(_refusing(outcome, lambda error: not isinstance(error, Superseded | NotFound))):
        return others[0]
    return outcome.unavailable(what, quorum, live)


def _refusing(outcome: Outcome[T], why: Callable[[SwiftletError], bool]) -> list[Device]:
    return [device for device, error in outcome.refusals if why(error)]


def acknowledged(outcome: Outcome[WriteReply], quorum: Quorum, what: str) -> bool:
    """Return whether there was an object to write to, for a write with its quorum of successes.

    Raises the error of the write otherwise.
    """
    if not quorum.met(outcome.done):
        raise refusal(outcome, quorum, what)
    return any(reply.existed for _, _, reply in outcome.replies)
