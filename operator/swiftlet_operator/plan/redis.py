"""The embedded Redis' password, and what replicators report about the failure table that they share through Redis.

The operator always makes the password: it is random, so its digest reveals nothing. To get another one, delete the
Secret `X-redis`; a password that was written there by hand is replaced as well.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import NamedTuple

from swiftlet.crd import Fact, StorageClusterSpec
from swiftlet_operator.build.redis import configuration, redis_name
from swiftlet_operator.build.settings import REDIS_PASSWORD, TLS_FILES
from swiftlet_operator.build.site import Site
from swiftlet_operator.keys import data_of
from swiftlet_operator.manifests import SECRET, STATEFUL_SET, digest_of
from swiftlet_operator.plan.actions import Fresh
from swiftlet_operator.reports import RedisReport
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

TYPE = "FailureTableShared"
_GENERATED = re.compile(r"[A-Za-z0-9_-]{24,128}", re.ASCII)
_STARTING_S = 600
"""Seconds after the creation of a cluster during which a missing Redis is not reported."""
_MAX_MESSAGE = 300
_COSTS = "nodes find failures on their own, somewhat later; nothing else is lost"


class Told(NamedTuple):
    """One replicator's report of its connection to Redis."""

    pod: str
    redis: RedisReport


def redis_password(world: World, fresh: Fresh) -> str:
    """Return the password in Secret `X-redis`, or a new one when it has none of ours."""
    encoded = data_of(world.child(SECRET, redis_name(world.cluster.meta.name))).get(REDIS_PASSWORD, "")
    try:
        found = base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        found = ""
    return found if _GENERATED.fullmatch(found) else fresh.token()


def redis_digest(world: World, site: Site, password: str) -> str:
    """Return a digest that changes when the server has to be restarted for its configuration or certificate."""
    tls = site.tls_secret
    certificate = data_of(world.secrets.get(tls)).get(TLS_FILES[0]) if tls is not None else None
    return digest_of([configuration(site, password), certificate])


def failure_table_shared(world: World) -> Fact:
    """Return whether replicators tell each other of failed nodes; Ready does not depend on it."""
    told = [
        Told(pod, reports["replicator"].redis)
        for pod, reports in sorted(world.reports.items())
        if "replicator" in reports and reports["replicator"].redis is not None
    ]
    if not told:
        return Fact(TYPE, "Unknown", "NotReported", "no replicator has said yet whether it reaches Redis")
    used = [one for one in told if one.redis.state is not None]
    if not used:
        message = (
            "the operator was started without an image of Redis, and spec.redis.image names none: "
            "nodes find failures on their own, which is somewhat slower"
        )
        return Fact(TYPE, "False", "NotUsed", message)
    asked = [one for one in used if one.redis.state == "up" or one.redis.reason]
    if not asked:
        return Fact(TYPE, "Unknown", "NotReported", "no replicator has tried to reach Redis yet")
    away = [one for one in asked if one.redis.state != "up"]
    if not away:
        return Fact(TYPE, "True", "Shared", f"all {len(asked)} replicators that answered share it through Redis")
    if _is_starting(world):
        return Fact(TYPE, "Unknown", "Starting", "the embedded Redis is being started")
    return _not_shared(world.cluster.spec, redis_name(world.cluster.meta.name), asked, away)


def _not_shared(spec: StorageClusterSpec, name: str, asked: Sequence[Told], away: Sequence[Told]) -> Fact:
    first = away[0].redis
    reason = first.reason if re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,63}", first.reason) else "Unreachable"
    words = first.message if len(first.message) <= _MAX_MESSAGE else f"{first.message[:_MAX_MESSAGE]}..."
    message = (
        f"{len(away)} of {len(asked)} replicators do not share it, {named([one.pod for one in away])}: {words}. "
        f"What it costs: {_COSTS}. {_advice(spec, name, reason)}"
    )
    return Fact(TYPE, "False", reason, message)


def _advice(spec: StorageClusterSpec, name: str, reason: str) -> str:
    if spec.redis.mode == "embedded":
        if reason in ("AuthenticationFailed", "FileUnreadable"):
            return f"A new password or certificate reaches all pods within two minutes; else delete Secret {name}"
        if reason == "TLSFailed":
            return "See spec.tls; the image in spec.redis.image must be built with TLS"
        return f"See the pod {name}-0 and its log; its image is spec.redis.image"
    fields = {
        "AuthenticationFailed": "spec.redis.passwordSecretRef",
        "FileUnreadable": "the Secrets that spec.redis.passwordSecretRef and spec.redis.tls.caSecretRef name",
        "TLSFailed": "spec.redis.tls",
        "Refused": "spec.redis.passwordSecretRef, and that Redis' configuration",
    }
    return f"See {fields.get(reason, 'spec.redis.address, spec.redis.tls')}"


def _is_starting(world: World) -> bool:
    """Return whether the embedded Redis is still being started for the first time."""
    if world.cluster.spec.redis.mode != "embedded" or world.now_s - world.created_s > _STARTING_S:
        return False
    server = world.child(STATEFUL_SET, redis_name(world.cluster.meta.name)) or {}
    known = any(one.type == TYPE and one.status != "Unknown" for one in world.cluster.conditions)
    return not known and not (server.get("status") or {}).get("readyReplicas")
