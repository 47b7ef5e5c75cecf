"""The verdict on one name, from its row on one side and the devices' versions on the other. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from swiftlet.model import ObjectRow
from swiftlet.timestamp import Timestamp


class Wrong(Enum):
    """The way in which a row is wrong; the value is the label of the metric."""

    GHOST = "ghost"
    """The name is listed, but there is no such object."""
    MISSING = "missing"
    """There is an object, but no live row."""
    SIZE = "size"
    ETAG = "etag"
    CONTENT_TYPE = "content-type"
    TIME = "time"
    """Only timestamps of the row differ."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A row that says something newer than the listing, or as new and stronger: it is merged like that of a write."""

    row: ObjectRow
    wrong: Wrong


@dataclass(frozen=True, slots=True)
class Replace:
    """A row that has to replace one that merging can't correct, because that claims more than any device holds.

    It is replaced only where it is still exactly as it was seen, so that a write that comes meanwhile loses nothing.
    """

    seen: ObjectRow
    row: ObjectRow
    wrong: Wrong


class NoRepair(Enum):
    """The row is right, or it can't be judged now."""

    FINE = "fine"
    UNDECIDED = "undecided"
    """The row is newer than what the answers say; whether it is wrong is only known when all devices have answered."""


Verdict = Merge | Replace | NoRepair


def judge(row: ObjectRow | None, truth: ObjectRow | None, complete: bool) -> Verdict:
    """Return the verdict on a listed `row`, when the devices together hold `truth`.

    `row` is None when there is neither a row nor a marker; `truth` is None for no object. `complete` tells that every
    device has answered that could hold something newer. If a device holds something newer than the row, the word of
    that one device is enough to list it, as each device brings the rows of its own writes. To take back what a row says
    needs the answers of all of them.
    """
    if truth is None or truth.deleted:
        return _judge_absent(row, truth, complete)
    if row is None:
        return Merge(truth, Wrong.MISSING)
    if row == truth:
        return NoRepair.FINE
    if row.merged(truth) == truth:
        return Merge(truth, _difference(row, truth))
    return Replace(row, truth, _difference(row, truth)) if complete else NoRepair.UNDECIDED


def _judge_absent(row: ObjectRow | None, truth: ObjectRow | None, complete: bool) -> Verdict:
    if row is None or row.deleted:
        return NoRepair.FINE
    if truth is not None and row.merged(truth).deleted:
        return Merge(truth, Wrong.GHOST)
    if not complete:
        return NoRepair.UNDECIDED
    # A deletion wins over a write of the same timestamp, and over no newer one.
    return Merge(ObjectRow(row.name, row.timestamp, deleted=True), Wrong.GHOST)


def newest(*rows: ObjectRow | None) -> Timestamp:
    """Return the newest timestamp of any field in these rows."""
    return max(max(row.modified, row.content_type_timestamp) for row in rows if row is not None)


def _difference(row: ObjectRow, truth: ObjectRow) -> Wrong:
    if row.deleted:
        return Wrong.MISSING
    if row.size != truth.size:
        return Wrong.SIZE
    if row.etag != truth.etag:
        return Wrong.ETAG
    return Wrong.CONTENT_TYPE if row.content_type != truth.content_type else Wrong.TIME
