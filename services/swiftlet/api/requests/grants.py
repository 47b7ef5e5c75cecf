"""`/v1/grants`: what a client may do at the object servers itself, signed, so that they need not ask anybody.

POST decides by the proxy's own functions and answers with a grant, a session on the native transport (a new one, or
the one that the client has), and what the client needs to find objects. DELETE makes grants of an account count no
more. `docs/design/2026-11-26-direct-access.md` has the reasons, `docs/transport.md` the forms.

Fault model: a client may ask for anything, for ever. What is asked for costs at most one look at a container, at its
account, and, where a quota applies, at their databases. A session of somebody else's gives its holder what is granted
here, and the asker nothing, as only its holder has its secret. An object server that can't be reached learns nothing of
a revocation: the answer names it, and for how long its grants may still count.
"""

from __future__ import annotations

import os
import time
from binascii import b2a_base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web
from swiftlet_native import cluster_key_id, guest_session, read_guest_session, sign_grant

from swiftlet.api.context.core import Facts
from swiftlet.api.http.problems import ApiError, answer
from swiftlet.api.requests.grant_answers import Commons
from swiftlet.api.requests.grant_decisions import Decisions
from swiftlet.api.requests.grant_forms import MAX_BODY, Asked, parse
from swiftlet.api.requests.grant_slices import UNLIMITED, GrantSlices
from swiftlet.api.requests.metadata_requests import token_text, whole_body
from swiftlet.auth.identity import is_owner
from swiftlet.auth.tokens import Token, Tokens
from swiftlet.context import request_id
from swiftlet.errors import Forbidden, SwiftletError
from swiftlet.names import Path, parse_path
from swiftlet.web.logs import get_logger, log_many

PREFIX = "/v1/grants"
LONGEST_LIFE_S = 900
"""Seconds after its issue for which object servers accept a grant at most."""
SESSION_S = 3600
"""Seconds for which a session lets its holder connect."""

_log = get_logger("grants")


@dataclass(frozen=True, slots=True)
class Told:
    """Who was told that grants count no more."""

    servers: int
    unreached: Mapping[str, str]
    """The servers that could not be told, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantsApi:
    """The collaborators of one metadata server process."""

    tokens: Tokens
    facts: Facts
    decisions: Decisions
    commons: Commons
    slices: GrantSlices
    keys: Callable[[], Sequence[bytes]]
    """Returns the cluster's keys, the signing one first."""
    authorities: Callable[[], Sequence[str]]
    """Returns the certificates (PEM) that object servers' are issued by; none when connections are not encrypted."""
    revoke: Callable[[str, int], Awaitable[Told]]
    """Tells object servers that grants of an account that were issued before a time in milliseconds count no more."""
    life_s: int
    """The life in seconds of a grant whose client asks for none."""
    max_life_s: int
    now: Callable[[], float] = time.time


def add_grant_routes(app: web.Application, api: GrantsApi) -> None:
    """Add the routes for grants to `app`."""

    async def give(request: web.Request) -> web.Response:
        account = "unknown"
        try:
            token = api.tokens.read(token_text(request))
            asked = parse(await whole_body(request, MAX_BODY))
            account = asked.account
            text = await _grant(api, token, asked)
            return web.Response(body=text.encode(), content_type="application/json", charset="utf-8")
        except SwiftletError as error:
            return answer(error, account)

    async def revoke(request: web.Request) -> web.Response:
        raw = request.rel_url.raw_path.removeprefix(PREFIX)
        try:
            return await _revoke(api, api.tokens.read(token_text(request)), parse_path(raw))
        except SwiftletError as error:
            return answer(error, raw[1:])

    app.router.add_post(PREFIX, give)
    app.router.add_delete(PREFIX + "/{account}", revoke)


async def _grant(api: GrantsApi, token: Token, asked: Asked) -> str:
    """Return the answer in JSON."""
    decision = await api.decisions.decide(token, asked)
    now = api.now()
    life_s = min(asked.life_s or api.life_s, api.max_life_s, token.expires - now)
    objects, total = UNLIMITED, UNLIMITED
    if decision.limits:
        held = await api.slices.hold(decision.limits, asked.amounts, life_s)
        objects, total = held.objects, held.bytes
        now = api.now()
    keys = api.keys()
    session_id, session = _session(keys, asked, now, life_s)
    common = api.commons.of(decision, asked, tuple(api.authorities()))
    size = min(asked.max_size, api.facts.options.limits.max_file_size)
    issued, ends = decision.known_at, min(now + life_s, decision.known_at + LONGEST_LIFE_S)
    signed = sign_grant(
        keys[0],
        session_id,
        (int(issued * 1000), int(ends * 1000)),
        common.policy,
        asked.bits,
        (1 << common.replicas) - 1,
        (size, objects, total),
        asked.account,
        asked.container,
        asked.prefix,
        asked.obj,
    )
    line = {
        "user": str(token.identity),
        "account": asked.account,
        "container": asked.container,
        "prefix": asked.prefix,
        "object": asked.obj,
        "operations": common.operations,
        "life_s": round(life_s, 3),
        "guest": session_id.hex(),
        "request_id": request_id.get(),
    }
    # One line for each grant, of which there are thousands a second; it is written before the grant is handed out.
    log_many("grants", "a grant was given", [line], now)
    limits = f'{objects}, "bytes": {total}' if decision.limits else 'null, "bytes": null'
    return (
        f'{{"grant": "{_base64(signed)}", "issued": {issued!r}, "now": {now!r}, "expires": {ends!r}, '
        f'"session": {session}, "max_size": {size}, "objects": {limits}{common.text}'
    )


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


def _session(keys: Sequence[bytes], asked: Asked, now: float, life_s: float) -> tuple[bytes, str]:
    """Return the id of the session that a grant is for, and in JSON the session if it is a new one.

    The secret of a session is handed out once: whoever names one has it already, or shall not get it.
    """
    if asked.session is not None:
        try:
            key_id, known, ends = read_guest_session(asked.session)
        except ValueError as error:
            raise ApiError(400, "session: the text that an earlier answer had is needed") from error
        if ends >= now + life_s and key_id in map(cluster_key_id, keys):
            return known, "null"
    fresh, ends = os.urandom(16), int(now) + SESSION_S
    session, secret = guest_session(keys[0], fresh, ends)
    return fresh, f'{{"token": "{_base64(session)}", "secret": "{_base64(secret)}", "expires": {ends}}}'


async def _revoke(api: GrantsApi, token: Token, path: Path) -> web.Response:
    if path.container is not None:
        raise ApiError(400, f"the path must name an account: {PREFIX}/ACCOUNT")
    if not is_owner(token.identity, path.account):
        raise Forbidden(f"{token.identity} is not an owner of account {path.account}")
    before = api.now()
    told = await api.revoke(path.account, int(before * 1000))
    _log.info(
        "an account's grants were revoked",
        user=str(token.identity),
        account=path.account,
        servers=told.servers,
        unreached=sorted(told.unreached),
    )
    body = {
        "account": path.account,
        "before": before,
        "servers": told.servers,
        "unreached": dict(told.unreached),
        "ended_by": before + (api.max_life_s if told.unreached else 0),
    }
    return web.json_response(body, status=200 if not told.unreached else 202)
