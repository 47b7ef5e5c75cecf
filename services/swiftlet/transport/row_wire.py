"""The messages of a row stream: updates of containers in one direction, their outcomes in the other; pure.

A message is a signature's text, a line feed, and JSON. To the server, with numbers that the sender chooses and that are
not in use:

    {"updates": [[number, device, partition, account, container, later, [row, ...]], ...]}

From it, unsigned as all answers are, each part only if there is any:

    {"taken": [[number, durable], ...], "durable": [number, ...], "lost": [number, ...],
     "refused": [[number, status, error], ...]}

What was taken and not durable is told of once more, as `durable`, or `lost` if it can't be known to be. Rows and errors
look as in HTTP's requests and answers.

Fault model: a peer may send anything; see `swiftlet.transport.listing_wire`. One update that is garbage refuses the
whole message, which ends the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swiftlet.errors import SwiftletError
from swiftlet.model import ObjectRow
from swiftlet.native_values import EncodedRows
from swiftlet.transport import listing_wire
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import WireError, array, error_from_wire, error_to_wire, json_bytes, json_object

PATH = "/v1/rows"
"""The path at which a server's stream begins, as a WebSocket."""
MAX_MESSAGE = listing_wire.MAX_UPDATE_BODY
"""The largest size in bytes of a message."""
SENT_BYTES = 1_000_000
"""The largest size in bytes of the rows in a message that we send."""
MAX_UNANSWERED = 4096
"""Updates of one stream that are neither durable nor refused; a server reads no more until there are fewer."""
_MAX_NUMBER = 1 << 53


@dataclass(frozen=True, slots=True)
class Update:
    """Rows for one container on one device; `later` tells that they need not be durable when they are answered."""

    number: int
    device: str
    partition: int
    account: str
    container: str
    later: bool
    rows: Sequence[ObjectRow]


@dataclass(slots=True)
class Answers:
    """The outcomes of updates, by number."""

    taken: dict[int, bool] = field(default_factory=dict)
    """Updates that were merged, and whether each is durable already."""
    durable: list[int] = field(default_factory=list)
    """Updates that were answered before and are durable now."""
    lost: list[int] = field(default_factory=list)
    """Updates that were answered before and may never become durable."""
    refused: dict[int, SwiftletError] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there are no outcomes."""
        return not (self.taken or self.durable or self.lost or self.refused)


def update_bytes(update: Update) -> bytes:
    """Encode an update as a part of a message."""
    place = [update.number, update.device, update.partition, update.account, update.container, update.later]
    if isinstance(update.rows, EncodedRows):
        return json_bytes(place)[:-1] + b",[" + update.rows.encoded + b"]]"
    return json_bytes([*place, [listing_wire.object_row_to_wire(row) for row in update.rows]])


def message(updates: Iterable[bytes], key: ClusterKey | None, host: str) -> bytes:
    """Encode a message to the server `host` (HOST:PORT) with updates made by `update_bytes`."""
    body = b'{"updates":[' + b",".join(updates) + b"]}"
    signature = "" if key is None else key.sign("ROWS", host, PATH, body)
    return signature.encode("ascii") + b"\n" + body


def updates_of(data: bytes, key: ClusterKey | None, host: str) -> list[Update]:
    """Decode the updates in a message; Unauthorized, WireError, InvalidName."""
    return [_update(entry) for entry in entries_of(data, key, host)]


def entries_of(data: bytes, key: ClusterKey | None, host: str) -> list[Any]:
    """Return the updates in a message, unchecked. Raises Unauthorized and WireError."""
    signature, _, body = data.partition(b"\n")
    if key is not None:
        key.check(signature.decode("ascii", "replace"), "ROWS", host, PATH, body)
    updates = array(json_object(body), "updates")
    if len(updates) > MAX_UNANSWERED:
        raise WireError(f"{len(updates)} updates in one message; send at most {MAX_UNANSWERED}")
    return updates


def _update(entry: object) -> Update:
    place, rows = parts_of(entry)
    return Update(*place, [listing_wire.object_row_from_wire(row) for row in rows])


def parts_of(entry: object) -> tuple[tuple[int, str, int, str, str, bool], list[Any]]:
    """Return number, device, partition, account, container, `later` and unchecked rows of an update."""
    if not isinstance(entry, list) or len(entry) < 7:
        raise WireError("an update is not an array or too short")
    number, device, partition, account, container, later, rows, *_ = entry
    if type(later) is not bool or not isinstance(device, str) or not isinstance(rows, list):
        raise WireError("an update's device, flag or rows are not of their type")
    if type(partition) is not int or not 0 <= partition < 1 << 32:
        raise WireError(f"{partition!r} is not a partition")
    if len(rows) > listing_wire.MAX_UPDATE_ROWS:
        raise WireError(f"{len(rows)} rows in one update; send at most {listing_wire.MAX_UPDATE_ROWS}")
    names = listing_wire.checked_name(account, "the account"), listing_wire.checked_name(container, "the container")
    return (_number(number), device, partition, *names, later), rows


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_NUMBER:
        raise WireError(f"{value!r} is not the number of an update")
    return value


def answers_bytes(answers: Answers) -> bytes:
    """Encode the outcomes of some updates."""
    fields: dict[str, Any] = {}
    if answers.taken:
        fields["taken"] = list(answers.taken.items())
    if answers.durable:
        fields["durable"] = answers.durable
    if answers.lost:
        fields["lost"] = answers.lost
    if answers.refused:
        fields["refused"] = [[number, *error_to_wire(error)] for number, error in answers.refused.items()]
    return json_bytes(fields)


def answers_of(data: bytes) -> Answers:
    """Decode the outcomes of some updates; WireError."""
    fields = json_object(data)
    answers = Answers()
    for entry in _array(fields, "taken"):
        if not isinstance(entry, list) or len(entry) < 2 or type(entry[1]) is not bool:
            raise WireError("an entry of taken is not [number, durable]")
        answers.taken[_number(entry[0])] = entry[1]
    answers.durable = [_number(number) for number in _array(fields, "durable")]
    answers.lost = [_number(number) for number in _array(fields, "lost")]
    for entry in _array(fields, "refused"):
        if not isinstance(entry, list) or len(entry) < 3 or type(entry[1]) is not int or not isinstance(entry[2], dict):
            raise WireError("an entry of refused is not [number, status, error]")
        answers.refused[_number(entry[0])] = error_from_wire(entry[1], entry[2])
    return answers


def _array(fields: Mapping[str, Any], name: str) -> list[Any]:
    return array(fields, name) if name in fields else []
