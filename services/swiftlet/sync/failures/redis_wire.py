"""The data that observers write into Redis, and the validation of what they read there. Pure.

| key, below `swiftlet:<cluster>:1:` | | lives |
|---|---|---|
| `heartbeat:<node>` | JSON: `life` (another one after every start), `domain`, `cutOff` | three heartbeats |
| `failures:<node>` | hash: other node -> `n_exception:t_exception`, times of Redis' clock | the suppression interval |
| `observers` | sorted set: who has such a hash, by the time it was written | two such intervals |
| `progress:<node>` | what its round has done so far; see `swiftlet.sync.planning.progress` | an hour |
| `notices` | channel: JSON: `news`, `node`, `by`, `domain` | |

The number is the format's version: replicators of two versions see nothing of each other there, and go by their own
exceptions and probes. Redis' clock is the only one that all observers share, so times are never those of an observer.

Fault model: anything may stand in a key or come by the channel. What is not of the form above, or too
long, is passed over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from swiftlet.sync.failures.neighbours import News, Notice
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import MAX_EXCEPTIONS, Exceptions

MAX_TEXT_BYTES = 2048
"""The largest size in bytes of a heartbeat or a notice."""
VERSION = 1
"""The version of the format; it is a part of the name of each key."""
_MAX_ROW_BYTES = 64
_NEWS = {news.value: news for news in News}


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of the keys of a cluster."""

    cluster: str

    def heartbeat(self, node: str) -> str:
        """Return the key of the heartbeat of a node's replicator."""
        return f"swiftlet:{self.cluster}:{VERSION}:heartbeat:{node}"

    def failures(self, observer: str) -> str:
        """Return the key of its failure table."""
        return f"swiftlet:{self.cluster}:{VERSION}:failures:{observer}"

    def progress(self, observer: str) -> str:
        """Return the key of its round's progress."""
        return f"swiftlet:{self.cluster}:{VERSION}:progress:{observer}"

    @property
    def observers(self) -> str:
        """Return the key of the set of observers whose failure table is not empty."""
        return f"swiftlet:{self.cluster}:{VERSION}:observers"

    @property
    def notices(self) -> str:
        """Return the name of the channel for notices."""
        return f"swiftlet:{self.cluster}:{VERSION}:notices"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat of a running replicator."""

    life: str
    domain: str
    cut_off: bool


def heartbeat_text(beat: Heartbeat) -> str:
    """Return the value of a heartbeat's key: its fields as JSON."""
    return json.dumps({"life": beat.life, "domain": beat.domain, "cutOff": beat.cut_off})


def heartbeat_of(text: object) -> Heartbeat | None:
    """Return the heartbeat that such a value tells of, None when it is anything else."""
    match _json(text):
        case {"life": str(life), "domain": str(domain), "cutOff": bool(cut_off)}:
            return Heartbeat(life, domain, cut_off)
    return None


def row_texts(rows: Mapping[str, Exceptions], offset_s: float) -> dict[str, str]:
    """Encode a failure table; `offset_s` is how many seconds Redis' clock is ahead of the table's."""
    return {node: f"{row.n_exception}:{row.t_exception + offset_s:.3f}" for node, row in rows.items()}


def rows_of(texts: object, offset_s: float) -> dict[str, Exceptions]:
    """Decode a failure table, with times on the reader's clock."""
    found: dict[str, Exceptions] = {}
    if not isinstance(texts, dict):
        return found
    for node, text in texts.items():
        if not (isinstance(node, str) and isinstance(text, str) and len(text) <= _MAX_ROW_BYTES):
            continue
        count, _, at = text.partition(":")
        try:
            row = Exceptions(int(count), float(at) - offset_s)
        except ValueError:
            continue
        if 1 <= row.n_exception <= MAX_EXCEPTIONS and math.isfinite(row.t_exception):
            found[node] = row
    return found


def notice_text(notice: Notice, by: Observer) -> str:
    """Return the message of a notice: what happened to which node, and who says so, as JSON."""
    return json.dumps({"news": notice.news.value, "node": notice.node, "by": by.name, "domain": by.domain})


def notice_of(text: object) -> tuple[Notice, Observer] | None:
    """Decode a notice; return it with the name of its sender."""
    match _json(text):
        case {"news": str(news), "node": str(node), "by": str(by), "domain": str(domain)} if news in _NEWS:
            return Notice(_NEWS[news], node), Observer(by, domain)
    return None


def _json(text: object) -> object:
    if not isinstance(text, str) or len(text) > MAX_TEXT_BYTES:
        return None
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed
