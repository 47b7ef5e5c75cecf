"""What a member of a federation tells the others: its statement, signed by the cluster key that all members have.

Each operator keeps the statement of its cluster in a ConfigMap there, and reads those of others from their API servers.
It has all that decisions elsewhere need: which rings the cluster has, its devices and what they reported, which rings
its services use, and whether it restarts pods. Nobody writes into another member's cluster.

Fault model: whoever has a member's API server may withhold a statement, repeat an old one or invent one. What is
invented has no valid signature, what is old counts as silence, and silence never makes it safe to go on. Fields are
only ever added, so members may run different versions; an unknown field is ignored, a missing one has its default.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from swiftlet.ring import Ring
from swiftlet_operator.reports import DeviceReport, Report, RingReport

STATEMENT = "statement"
"""The entry of the ConfigMap with a statement."""
FORMAT = 1
"""The version of a statement's form. A reader refuses a higher one."""
MAX_STATEMENT_BYTES = 900_000
"""The largest signed statement in bytes: a ConfigMap holds 1 MiB. That is some ten thousand devices."""
MAX_UNPACKED_BYTES = 32 * 1024 * 1024
"""The largest statement in bytes before it is packed."""
FRESH_S = 600
"""Seconds after which a statement counts as silence: no ring changes and no pod goes by the word of an older one."""
RENEWED_S = 240
"""Seconds after which a statement is written anew although nothing in it has changed."""
SKEW_S = 300
"""Seconds by which the clock of another member may be ahead."""
_MAC_BYTES = 32
_PURPOSE = b"v1 derived\nfederation statement"

Name = Annotated[str, Field(max_length=253)]
Ident = Annotated[str, Field(max_length=64)]
Count = Annotated[int, Field(ge=0)]


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RingSaid(_Said):
    """A ring as a member has published it: `digest` is over its chunks, `content` over who has which partition,
    `since_s` is when it was laid out.
    """

    version: Count
    digest: Ident
    content: Ident
    chunks: Annotated[int, Field(ge=1, le=1024)]
    since_s: Count = 0


class DeviceSaid(_Said):
    """A device that takes part in `rings`; `zone` and `node` are None while its pod has not been scheduled."""

    name: Name
    host: Name
    port: Annotated[int, Field(ge=1, le=65535)]
    device: Ident
    region: Ident
    weight: Annotated[float, Field(ge=0, le=10_000_000)]
    zone: Ident | None = None
    node: Name | None = None
    full: bool = False
    rings: Annotated[tuple[Ident, ...], Field(max_length=1024)] = ()


class RingStateSaid(_Said):
    """Tells what a device's replicator reported of it in one ring; see `swiftlet_operator.reports.RingReport`."""

    held: Count | None = None
    misplaced: Count | None = None
    behind: Count | None = None
    unchecked: Count | None = None
    synced_at_s: float | None = None
    ring_version: Count = 0


class DeviceStateSaid(_Said):
    """Tells what a device's server and replicator reported of it."""

    state: Ident | None = None
    pending: Count | None = None
    rings: dict[str, RingStateSaid] = {}


class PolicySaid(_Said):
    """A storage policy, as far as all members have to have the same; `settings` is its values as text."""

    index: Count
    name: Name
    settings: Annotated[str, Field(max_length=1024)]


class Statement(_Said):
    """The statement of a member.

    `uses` are the oldest versions that its running services use, by ring; None while some service does not say.
    `everywhere` is the same of all members, as far as the leader knows. `wants` says whether it has pods to restart or
    nodes to empty, `busy` whether something with data is away, or not in sync since. By the leader's word, `turn` is
    the member that may take pods down, and `troubled` are those that are busy or not heard.
    """

    format: int = FORMAT
    federation: Ident
    member: Ident
    leader: Ident
    at_s: Count
    rings: dict[str, RingSaid] = {}
    devices: tuple[DeviceSaid, ...] = ()
    states: dict[str, DeviceStateSaid] = {}
    uses: dict[str, int] | None = None
    everywhere: dict[str, int] | None = None
    policies: tuple[PolicySaid, ...] = ()
    wants: bool = False
    busy: bool = True
    turn: Ident = ""
    troubled: tuple[Ident, ...] = ()


class RefusedStatement(Exception):
    """A statement that does not count; `reason` is one word for conditions."""

    def __init__(self, reason: str, message: str) -> None:
        """Say why it does not count."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Heard:
    """What was heard of a member: its statement, or why there is none that counts."""

    statement: Statement | None = None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Federated:
    """What was read of other members: what was heard of each, by name, and rings of theirs that are newer.

    `states` are devices of others, by name, as their members reported them in statements that count.
    """

    heard: Mapping[str, Heard] = field(default_factory=dict)
    rings: Mapping[str, Ring] = field(default_factory=dict)
    reports: Mapping[str, Mapping[str, Report]] = field(default_factory=dict)

    def said(self, member: str) -> Statement | None:
        """Return the statement of a member, None when there is none that counts."""
        found = self.heard.get(member)
        return found.statement if found is not None else None


def sealed_statement(statement: Statement, keys: Sequence[bytes]) -> bytes:
    """Return a statement with its signature by the first key."""
    packed = zlib.compress(statement.model_dump_json(exclude_defaults=True).encode(), 9)
    return _mac(keys[0], packed) + packed


def opened(data: bytes, keys: Iterable[bytes]) -> Statement:
    """Return the statement in these bytes. Raises RefusedStatement unless one of the keys has signed it."""
    mac, packed = data[:_MAC_BYTES], data[_MAC_BYTES:]
    if not any(hmac.compare_digest(mac, _mac(key, packed)) for key in keys):
        raise RefusedStatement(
            "KeysDiffer",
            "its statement is not signed by a cluster key of this cluster: give both the same Secret with keys "
            "(docs/guide/federation.md)",
        )
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, MAX_UNPACKED_BYTES)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise RefusedStatement("StatementUnreadable", "its statement is damaged or too large")
        found = Statement.model_validate_json(text)
    except (zlib.error, ValidationError) as error:
        raise RefusedStatement("StatementUnreadable", f"its statement can't be read: {_short(error)}") from error
    if found.format > FORMAT:
        raise RefusedStatement(
            "StatementTooNew", f"its statement has form {found.format}, and this operator reads {FORMAT}: upgrade it"
        )
    return found


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _mac(key: bytes, packed: bytes) -> bytes:
    derived = hmac.digest(key, _PURPOSE, hashlib.sha256)
    return hmac.digest(derived, packed, hashlib.sha256)


def digest_of_chunks(chunks: Iterable[bytes]) -> str:
    """Return the digest by which a ring's chunks are known to be those of a statement."""
    found = hashlib.sha256()
    for chunk in chunks:
        found.update(len(chunk).to_bytes(8, "big") + chunk)
    return found.hexdigest()


def essence(statement: Statement, since: Mapping[str, float]) -> Any:
    """Return what of a statement is worth a write at once: everything but times and counts that go up and down.

    `since` has by ring the time after which a round without work counts.
    """
    fields = statement.model_dump(exclude={"at_s", "states"})
    states = {
        name: (
            one.state,
            bool(one.pending),
            one.pending is None,
            {
                ring: (
                    *(None if count is None else bool(count) for count in _counts(said)),
                    said.synced_at_s is not None and said.synced_at_s >= since.get(ring, 0),
                    said.ring_version,
                )
                for ring, said in one.rings.items()
            },
        )
        for name, one in statement.states.items()
    }
    return fields, states


def _counts(said: RingStateSaid) -> tuple[int | None, ...]:
    return said.held, said.misplaced, said.behind, said.unchecked


def state_said(server: DeviceReport | None, replicator: DeviceReport | None) -> DeviceStateSaid:
    """Return what is to be said of a device by the reports of its server and of its replicator."""
    rings = replicator.rings if replicator is not None else {}
    return DeviceStateSaid(
        state=server.state if server is not None else None,
        pending=server.pending if server is not None else None,
        rings={
            name: RingStateSaid(
                held=one.held,
                misplaced=one.misplaced,
                behind=one.behind,
                unchecked=one.unchecked,
                synced_at_s=one.synced_at_s,
                ring_version=one.ring_version,
            )
            for name, one in rings.items()
        },
    )


def reports_of(statements: Iterable[Statement]) -> dict[str, dict[str, Report]]:
    """Return what statements say of devices as reports of these devices' pods, by pod and service."""
    servers: dict[str, dict[str, dict[str, DeviceReport]]] = {}
    for statement in statements:
        for name, said in statement.states.items():
            pod, _, device = name.partition("/")
            service = "container" if device == "db" else "object"
            found = servers.setdefault(pod, {})
            found.setdefault(service, {})[device] = DeviceReport(state=said.state, pending=said.pending)
            rings = {ring: _report(one) for ring, one in said.rings.items()}
            found.setdefault("replicator", {})[name] = DeviceReport(rings=rings)
    return {
        pod: {service: Report(service, devices=devices) for service, devices in services.items()}
        for pod, services in servers.items()
    }


def _report(said: RingStateSaid) -> RingReport:
    return RingReport(said.held, said.misplaced, said.behind, said.unchecked, said.synced_at_s, said.ring_version)
