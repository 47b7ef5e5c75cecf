"""Who is granted what at the object servers: decided by the functions that decide about requests to a proxy.

What was decided is remembered for a moment, so that many processes of one user, which all begin at once, cost little:
a grant lives much longer than that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from swiftlet.api.context.core import Facts
from swiftlet.api.context.fresh_cache import FRESH_S
from swiftlet.api.http.problems import ApiError
from swiftlet.api.requests.grant_forms import Asked
from swiftlet.api.writing import plain_access
from swiftlet.api.writing.quota_checks import Limited, limits_of
from swiftlet.auth.tokens import Token
from swiftlet.model import ContainerInfo
from swiftlet.names import Path
from swiftlet.settings.sections import LimitsSection

REMEMBERED_S = 0.25
"""Seconds for which a decision is remembered."""
_MAX_REMEMBERED = 4096
"""The number of decisions that are remembered; the oldest are forgotten first."""
_META_COUNT, _META_NAME, _META_VALUE, _META_ALL = 90, 128, 256, 4096
"""The limits of metadata that guests may set, enforced by object servers: the number of items, bytes of a name, of a
value, and of all together. They are Swift's.
"""
_USE_A_PROXY = "objects of this container have versions or expire: use a proxy"


@dataclass(frozen=True, slots=True)
class Decision:
    """What was asked for is allowed."""

    container: ContainerInfo
    limits: tuple[Limited, ...]
    """The quotas that apply to what is going to be stored."""
    known_at: float
    """The time, in seconds since the epoch, of which its facts are.

    A grant counts as issued then, so that a change that came between the two ends it.
    """


class Decisions:
    """The decisions of one process; `clock` returns monotonic seconds, `now` seconds since the epoch."""

    def __init__(
        self, facts: Facts, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        """Start with no decision remembered; what decisions rest on comes from `facts`."""
        self._facts = facts
        self._clock = clock
        self._now = now
        self._made: dict[tuple[object, ...], tuple[float, Decision]] = {}

    async def decide(self, token: Token, asked: Asked) -> Decision:
        """Return the decision, unless it is refused.

        Raises Forbidden, NotFound and Unavailable as a proxy would, and ApiError 409 where only a proxy can do it.
        """
        of = (token.id, token.identity, asked.account, asked.container, asked.operations)
        now = self._clock()
        until, decision = self._made.get(of, (now, None))
        if decision is not None and now < until:
            return decision
        made = await self._decide(token, asked)
        while len(self._made) >= _MAX_REMEMBERED:
            del self._made[next(iter(self._made))]
        self._made[of] = now + REMEMBERED_S, made
        return made

    async def _decide(self, token: Token, asked: Asked) -> Decision:
        facts, container = self._facts, Path(asked.account, asked.container)
        if asked.operations & {"put", "post"} and not _as_in_swift(facts.options.limits):
            raise ApiError(409, "object servers do not know this cluster's limits of metadata: store through a proxy")
        if asked.writes and facts.options.rate_limits.on:
            raise ApiError(409, "writes are rate-limited here, which only a proxy can do")
        if asked.writes:
            info = await plain_access.to_write(facts, token.identity, container, asked.methods, FRESH_S)
        else:
            info = await self._to_read(token, asked, container)
        if info is None:
            raise ApiError(409, _USE_A_PROXY)
        policies = facts.options.policies
        if (move := policies.move_in_force(info.move)) is not None:
            names = f"{policies.name_of(move.source)} to {policies.name_of(move.target)}"
            raise ApiError(409, f"this container moves from storage policy {names}: use a proxy")
        if facts.options.policies.coding(info.policy) is not None:
            raise ApiError(409, "objects of this container have erasure coding: use a proxy")
        limits: tuple[Limited, ...] = ()
        if "put" in asked.operations:
            limits = await limits_of(facts, Path(asked.account, asked.container, plain_access.ANY))
        ages = facts.containers.age_s(asked.account, asked.container), facts.accounts.age_s(asked.account)
        # What is no longer remembered was just now.
        age_s = max(age for age in (*ages, 0.0) if age < math.inf)
        return Decision(info, limits, self._now() - age_s)

    async def _to_read(self, token: Token, asked: Asked, container: Path) -> ContainerInfo | None:
        info = await self._facts.containers.get(asked.account, asked.container, FRESH_S)
        await self._facts.accounts.metadata(asked.account, FRESH_S)
        await plain_access.require(self._facts, token.identity, container, asked.methods)
        return None if plain_access.is_versioned(self._facts, info) else info


def _as_in_swift(limits: LimitsSection) -> bool:
    """Return whether what object servers accept of guests is within the limits of metadata."""
    names, values = limits.max_meta_name_length >= _META_NAME, limits.max_meta_value_length >= _META_VALUE
    return names and values and limits.max_meta_count >= _META_COUNT and limits.max_meta_overall_size >= _META_ALL
