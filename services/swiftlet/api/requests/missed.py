"""`/v1/missed`: a client that stores objects at the devices itself names those that have missed writes of it.

A member of the cluster tells a device that a write was acknowledged without it; from then on the device sends readers
of that partition elsewhere, until its replicator has proved that it lacks nothing (`swiftlet.placement.missed`). Guests
may not tell devices such things. A metadata server does it for them, about partitions of objects that they may store.

Fault model: a client may lie. Then readers of these partitions ask another replica first, until the device's replicator
has compared them: nothing fails. A client can name objects until each partition is among them; so an account may name
`BURST` partitions at once and `PER_S` in a second, at each process. This process may end before it has told a device,
as a proxy may that has stored an object: then that device shows what it has until its replicator has mended it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from swiftlet.api.context.bounded_cache import BoundedCache
from swiftlet.api.context.core import Facts
from swiftlet.api.http.problems import ApiError, answer
from swiftlet.api.requests.json_fields import json_fields, name_field, number_field, text_field
from swiftlet.api.requests.metadata_requests import token_text, whole_body
from swiftlet.api.writing import plain_access
from swiftlet.auth.tokens import Tokens
from swiftlet.errors import SwiftletError
from swiftlet.names import MAX_ACCOUNT_NAME, MAX_CONTAINER_NAME, MAX_OBJECT_NAME, HashPath, Path
from swiftlet.placement.copies import MissedWrites
from swiftlet.placement.rings import Rings
from swiftlet.ring.model import Device

ROUTE = "/v1/missed"
MAX_BODY = 128 * 1024
"""The largest size in bytes of a request: names may have 1,024 bytes each, and more where JSON escapes them."""
MAX_NAMED = 64
"""Objects that one request may name, counted for each device."""
PER_S, BURST = 64.0, 1024.0
"""Partitions, counted for each device, that an account may name in a second, and at once."""
MAX_ACCOUNTS = 4096
"""Accounts whose rates are remembered; the ones that were heard of longest ago are forgotten."""
_FIELDS = frozenset({"account", "container", "policy", "missed"})
_MISSED = frozenset({"device", "objects"})


@dataclass(frozen=True, slots=True)
class Named:
    """What a client says was missed: by the ids of devices, names of objects."""

    account: str
    container: str
    policy: int
    missed: Mapping[int, Sequence[str]]


def parse(body: bytes) -> Named:
    """Return what a request says. Raises ApiError 400 that names the field which is wrong."""
    fields = json_fields(body, _FIELDS, "a request about missed writes")
    entries, missed = fields.get("missed"), dict[int, list[str]]()
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ApiError(400, "missed: a list of objects with the fields device and objects is needed")
    for entry in entries:
        _check_fields(entry)
        names = entry["objects"]
        if not isinstance(names, list) or not names:
            raise ApiError(400, "objects: a list of names is needed")
        of_device = missed.setdefault(number_field(entry, "device", 0, 0), [])
        of_device += [str(text_field({"objects": name}, "objects", MAX_OBJECT_NAME)) for name in names]
    if sum(map(len, missed.values())) > MAX_NAMED:
        raise ApiError(400, f"missed: at most {MAX_NAMED} objects can be named in a request")
    return Named(
        name_field(fields, "account", MAX_ACCOUNT_NAME),
        name_field(fields, "container", MAX_CONTAINER_NAME),
        number_field(fields, "policy", 0, 0),
        missed,
    )


def _check_fields(entry: Mapping[str, Any]) -> None:
    if unknown := entry.keys() - _MISSED:
        raise ApiError(400, f"{min(unknown)[:64]!r} is not a field of an entry of missed")
    if lacking := _MISSED - entry.keys():
        raise ApiError(400, f"{min(lacking)} is missing in an entry of missed")


@dataclass(slots=True)
class _Allowance:
    """How many partitions an account may name now, as of a time on a monotonic clock."""

    left: float
    at: float


class Allowances:
    """How much each account may say; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with full allowances."""
        self._clock = clock
        self._known: BoundedCache[str, _Allowance] = BoundedCache(BURST / PER_S, MAX_ACCOUNTS, clock)

    def take(self, account: str, count: int) -> None:
        """Count what an account names. Raises ApiError 429 when that is more than it may name now."""
        now = self._clock()
        known = self._known.get(account) or _Allowance(BURST, now)
        known.left = min(BURST, known.left + (now - known.at) * PER_S)
        known.at = now
        self._known.put(account, known)
        if known.left < count:
            raise ApiError(
                429, f"at most {PER_S:g} partitions in a second can be named as missed", {"Retry-After": "1"}
            )
        known.left -= count


@dataclass(frozen=True, slots=True)
class MissedApi:
    """The collaborators of one metadata server process."""

    tokens: Tokens
    facts: Facts
    rings: Rings
    hash_path: HashPath
    missed: MissedWrites
    """Tells devices which of their partitions have missed writes."""
    allowances: Allowances


def add_missed_route(app: web.Application, api: MissedApi) -> None:
    """Add the route for missed writes to `app`."""

    async def note(request: web.Request) -> web.Response:
        account = "unknown"
        try:
            token = api.tokens.read(token_text(request))
            named = parse(await whole_body(request, MAX_BODY))
            account = named.account
            await plain_access.require(api.facts, token.identity, Path(account, named.container), ("PUT",))
            noted = _note(api, named)
            return web.Response(
                status=202, body=json.dumps({"noted": noted}).encode(), content_type="application/json", charset="utf-8"
            )
        except SwiftletError as error:
            return answer(error, account)

    app.router.add_post(ROUTE, note)


def _note(api: MissedApi, named: Named) -> int:
    """Have devices told what they have missed; return of how many partitions, counted for each device.

    A device that is no primary of an object by this process's ring is passed over: nobody reads the object there first.
    """
    if api.facts.options.policies.at(named.policy) is None:
        raise ApiError(400, f"policy: there is no storage policy with the index {named.policy}")
    ring = api.rings.objects(named.policy)
    places: dict[tuple[int, int], Device] = {}
    for id_, names in named.missed.items():
        for name in names:
            partition = ring.partition_of(api.hash_path.of(Path(named.account, named.container, name)))
            for device in ring.primaries(partition):
                if device.id == id_:
                    places[id_, partition] = device
    api.allowances.take(named.account, len(places))
    for (_, partition), device in places.items():
        api.missed.note(device, named.policy, partition)
    return len(places)
