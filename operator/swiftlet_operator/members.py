"""Reads other members of a federation from their API servers: statements, and rings that are newer than ours.

A member is reached by the kubeconfig in a Secret. Of a kubeconfig only an address, authorities and a token count:
commands and files in it would be the operator's, not those of the cluster whose owner wrote the Secret.

Fault model: another cluster is away, slow, refuses, or answers with nonsense or too much. Each of these means that
nothing was heard of that member, within the time limit, and says why; all else goes on.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import yaml

from swiftlet.crd import FederationSpec, MemberSpec
from swiftlet.documents import read_document
from swiftlet.ring import Ring
from swiftlet_operator.build.names import ring_map, statement_map
from swiftlet_operator.keys import cluster_keys
from swiftlet_operator.manifests import Manifest
from swiftlet_operator.rings import ring_of
from swiftlet_operator.statements import (
    FRESH_S,
    SKEW_S,
    STATEMENT,
    Federated,
    Heard,
    RefusedStatement,
    RingSaid,
    Statement,
    digest_of_chunks,
    opened,
    reports_of,
)

TIMEOUT_S = 5.0
"""Seconds that a member's API server has for one answer."""
RINGS_TIMEOUT_S = 60.0
"""Seconds that a member's API server has for all chunks of one ring."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""The largest answer of a member's API server in bytes: a ConfigMap of 1 MiB, in base64 and twice."""
MAX_KUBECONFIG_BYTES = 64 * 1024
"""The largest kubeconfig in bytes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """Where a member's API server is, and what admits us."""

    server: str
    token: str
    authorities: str


Read = Callable[[Access, str, str], Awaitable[Manifest | None]]
"""Returns a ConfigMap of a namespace by name, None when there is none. Raises MemberAway."""


class MemberAway(Exception):
    """A member's API server gave no answer that can be used; `reason` is one word for conditions."""

    def __init__(self, reason: str, message: str) -> None:
        """Take a message that says what is wrong, and what to do about it."""
        super().__init__(message)
        self.reason = reason


async def hear(
    federation: FederationSpec,
    secrets: Mapping[str, Manifest | None],
    keys: Manifest | None,
    versions: Mapping[str, int],
    now_s: int,
    read: Read,
) -> Federated:
    """Return what is heard of the members that this one reads.

    `secrets` has those with their kubeconfigs, `keys` is ours, `versions` has the newest version of each ring that this
    cluster has already.
    """
    own = cluster_keys(keys)
    asked = [_hear(federation, one, secrets, own, now_s, read) for one in federation.heard]
    answers = await asyncio.gather(*asked)
    heard = {one.name: answer for one, answer in zip(federation.heard, answers, strict=True)}
    found = [one.statement for one in answers if one.statement is not None]
    rings: dict[str, Ring] = {}
    for member in federation.heard:
        statement = heard[member.name].statement
        if statement is None or statement.leader != federation.leader:
            continue
        for name, said in sorted(statement.rings.items()):
            if said.version <= max(versions.get(name, 0), rings[name].version if name in rings else 0):
                continue
            ring = await _ring(member, _access(member, secrets), name, said, read)
            if ring is not None:
                rings[name] = ring
    return Federated(heard, rings, reports_of(found))


async def _hear(
    federation: FederationSpec,
    member: MemberSpec,
    secrets: Mapping[str, Manifest | None],
    keys: tuple[bytes, ...],
    now_s: int,
    read: Read,
) -> Heard:
    if not keys:
        return Heard(None, "KeysMissing", "this cluster has no keys yet")
    try:
        live = await read(_access(member, secrets), member.namespace, statement_map(member.cluster))
        if live is None:
            raise MemberAway(
                "NoStatement",
                f"there is no ConfigMap {statement_map(member.cluster)} in its namespace {member.namespace}: is its "
                "StorageCluster there, with spec.federation, and are namespace and cluster right?",
            )
        data = base64.b64decode((live.get("binaryData") or {}).get(STATEMENT, ""), validate=True)
        statement = opened(data, keys)
        _fits(federation, member, statement, now_s)
    except (MemberAway, RefusedStatement) as error:
        return Heard(None, error.reason, str(error))
    except (binascii.Error, ValueError, AttributeError, TypeError) as error:
        return Heard(None, "StatementUnreadable", f"its statement can't be read: {type(error).__name__}")
    return Heard(statement)


def _fits(federation: FederationSpec, member: MemberSpec, statement: Statement, now_s: int) -> None:
    if (statement.federation, statement.member) != (federation.name, member.name):
        raise RefusedStatement(
            "OtherMember",
            f"the cluster there is member {statement.member} of federation {statement.federation}, not {member.name} "
            f"of {federation.name}: correct the names in both",
        )
    age_s = now_s - statement.at_s
    if age_s > FRESH_S:
        raise RefusedStatement(
            "Silent", f"its last statement is {age_s} s old: is its operator running, and spec.paused false?"
        )
    if age_s < -SKEW_S:
        raise RefusedStatement("ClocksDiffer", f"its clock is {-age_s} s ahead: set the clocks of both")


async def _ring(member: MemberSpec, access: Access, name: str, said: RingSaid, read: Read) -> Ring | None:
    """Return a ring of a member, None unless it is the very one of its statement; it may be being replaced just now."""
    chunks: list[bytes] = []
    try:
        async with asyncio.timeout(RINGS_TIMEOUT_S):
            for index in range(said.chunks):
                live = await read(access, member.namespace, ring_map(member.cluster, name, index))
                text = ((live or {}).get("binaryData") or {}).get("chunk", "")
                chunks.append(base64.b64decode(text, validate=True))
    except (MemberAway, TimeoutError, binascii.Error, ValueError, AttributeError, TypeError) as error:
        _log.warning("ring %s of member %s could not be read: %s", name, member.name, error)
        return None
    ring = ring_of(chunks) if digest_of_chunks(chunks) == said.digest else None
    if ring is None or ring.version != said.version:
        _log.info("ring %s of member %s is not that of its statement; it may be changing", name, member.name)
        return None
    return ring


def _access(member: MemberSpec, secrets: Mapping[str, Manifest | None]) -> Access:
    reference = member.kubeconfig_secret_ref
    entry = ((secrets.get(reference.name) or {}).get("data") or {}).get(reference.key)
    where = f"Secret {reference.name} (federation.members {member.name}, kubeconfigSecretRef)"
    if not entry:
        raise MemberAway("KubeconfigMissing", f"{where} is not there or has no entry {reference.key}")
    try:
        content = base64.b64decode(entry, validate=True)
        if len(content) > MAX_KUBECONFIG_BYTES:
            raise MemberAway("KubeconfigUnusable", f"{where} is larger than {MAX_KUBECONFIG_BYTES} bytes")
        return access_of(read_document(content.decode()))
    except (ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError, StopIteration) as error:
        raise MemberAway(
            "KubeconfigUnusable",
            f"{where} is no kubeconfig with an https server, certificate-authority-data and a token: {error}",
        ) from error


def access_of(document: Any) -> Access:
    """Return what a kubeconfig says of its current context. Raises ValueError or LookupError for one without that."""

    def named(kind: str, name: str, inner: str) -> Any:
        found = [one[inner] for one in document[kind] if one["name"] == name]
        if not found:
            raise ValueError(f"there is no entry {name} in {kind}")
        return found[0]

    context = named("contexts", document["current-context"], "context")
    cluster, user = named("clusters", context["cluster"], "cluster"), named("users", context["user"], "user")
    server, token = str(cluster["server"]), str(user["token"])
    if not server.startswith("https://"):
        raise ValueError("its server is not https://")
    if cluster.get("insecure-skip-tls-verify"):
        raise ValueError("insecure-skip-tls-verify is not taken: the token would go to anybody")
    authorities = base64.b64decode(cluster["certificate-authority-data"], validate=True).decode()
    return Access(server.rstrip("/"), token.strip(), authorities)


async def read_over_https(access: Access, namespace: str, name: str) -> Manifest | None:
    """Return a ConfigMap from another API server; see `Read`."""
    url = f"{access.server}/api/v1/namespaces/{namespace}/configmaps/{name}"
    try:
        context = ssl.create_default_context(cadata=access.authorities)
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        headers = {"Authorization": f"Bearer {access.token}"}
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(url, headers=headers, allow_redirects=False) as response,
        ):
            if response.status == 404:
                return None
            if response.status in (401, 403):
                raise MemberAway(
                    "Forbidden",
                    f"its API server answers {response.status}: renew the token in the kubeconfig, or let it get "
                    f"ConfigMaps in namespace {namespace}",
                )
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    raise MemberAway("Unreachable", f"its API server answers with more than {MAX_ANSWER_BYTES} bytes")
            if response.status != 200:
                raise MemberAway("Unreachable", f"its API server answers {response.status}")
            found = json.loads(body)
            if not isinstance(found, dict):
                raise MemberAway("Unreachable", "its API server answers with something that is no ConfigMap")
            return found
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
        raise MemberAway(
            "Unreachable", f"its API server {access.server} can't be asked: {error or type(error).__name__}"
        ) from error
