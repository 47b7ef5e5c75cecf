"""The only module that calls the API server.

A thin client over aiohttp: kopf brings aiohttp and the login anyway, requests are cancelled with their task instead
of leaving a thread behind, and the official client's models would be most of the operator's memory. What comes back
is plain data; what goes wrong becomes an error of `swiftlet_operator.problems`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import aiohttp
import kopf

from swiftlet_operator.manifests import EVENT, MANAGER, NODE, Kind, Manifest, kind_of, name_of, selector
from swiftlet_operator.metrics import REQUESTS
from swiftlet_operator.problems import KubeConflict, KubeError, KubeForbidden, KubeInvalid, KubeUnavailable

PAGE_SIZE = 500
"""Objects per page of a list."""
MOST_EVENTS = 100
"""The largest number of events of one object that are read; Kubernetes keeps them for an hour, and a component writes
few about the same object.
"""
CONNECTIONS = 30
"""For requests at a time; watches, which keep theirs, have others."""
TRIES = 4
"""A request that the API server was too busy for is sent so often, and then the whole is tried again later."""
MAX_WAIT_S = 5.0
"""No longer than this is waited because of one answer."""
_MAX_REASON = 500
LOGIN_LIFE_S = 60.0
"""A service account's token changes on disk; the file is read again after this time."""
WATCH_TIMEOUT_S = 300
"""Watches are renewed this often, so that one that went silent is found out; the API server takes whole seconds."""
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_BUSY = frozenset({408, 429, 500, 502, 503, 504})

_log = logging.getLogger(__name__)


class Kube(Protocol):
    """What the operator asks of an API server. All methods raise KubeError and its subclasses."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """One object, None when there is none."""
        ...

    async def events(self, namespace: str, kind: str, name: str) -> list[Manifest]:
        """Events of an object, of which there are few: Kubernetes joins equal ones. A limited number of them."""
        ...

    async def named(self, kind: Kind, name: str) -> list[Manifest]:
        """All objects of this name, of all namespaces."""
        ...

    async def list(self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        """All objects of a namespace (of all when None) with these labels; none when the kind is unknown."""
        ...

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server knows the kind."""
        ...

    async def apply(self, manifest: Manifest) -> Manifest:
        """Server-side apply: what the manifest names becomes ours and as it says, the rest stays as it is."""
        ...

    async def create(self, manifest: Manifest) -> Manifest:
        """Make it; KubeConflict when it exists."""
        ...

    async def replace(self, manifest: Manifest) -> Manifest:
        """Overwrite it; KubeConflict unless its resourceVersion is still the given one."""
        ...

    async def patch(
        self, kind: Kind, namespace: str, name: str, change: Manifest, subresource: str | None = None
    ) -> Manifest | None:
        """Merge a change; None when the object is gone."""
        ...

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, grace_s: int | None = None) -> None:
        """Delete this very object, if it is still there; what depends on it goes in the background.

        `grace_s` is the time that a pod gets to end, None its own; at 0 its node is not asked.
        """
        ...


Metadata = Mapping[str, Any]
"""The `metadata` of an object."""
Heads = tuple[list[Metadata], str]
"""The metadata of objects, and the version of their list."""


class Watching(Protocol):
    """What a watch asks of an API server. All methods raise KubeError and its subclasses."""

    async def heads(self, kind: Kind, namespace: str | None, labels: Mapping[str, str]) -> Heads:
        """The metadata of all objects of a namespace (of all when None) with these labels, and the list's version."""
        ...

    def changes(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str], since: str
    ) -> AsyncIterator[tuple[str, Metadata | None]]:
        """Versions after `since` as they come, each with the metadata of what was made, changed or deleted.

        None for a version at which nothing has changed. Ends after a time; KubeUnavailable when the connection ends
        earlier, another KubeError when the API server does not know about the time since then any more.
        """
        ...


class HttpKube:
    """The API server over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, login: Login) -> None:
        """`login` says who we are, `session` connects as its certificates want it."""
        self._session = session
        self._login = login

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        return await self._ask("GET", _url(kind, namespace, name), missing=None)

    async def events(self, namespace: str, kind: str, name: str) -> list[Manifest]:
        query = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}", "limit": str(MOST_EVENTS)}
        page = await self._ask("GET", _url(EVENT, namespace), query, missing=None)
        return list((page or {}).get("items") or [])

    async def named(self, kind: Kind, name: str) -> list[Manifest]:
        return await self._list(kind, None, {"fieldSelector": f"metadata.name={name}"})

    async def _list(self, kind: Kind, namespace: str | None, chosen: Mapping[str, str]) -> list[Manifest]:
        query = {"limit": str(PAGE_SIZE), **chosen}
        found: list[Manifest] = []
        while True:
            page = await self._ask("GET", _url(kind, namespace), query, missing=None)
            if page is None:
                return found
            # Items of a list come without their kind.
            found += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or []]
            following = page.get("metadata", {}).get("continue")
            if not following:
                return found
            query["continue"] = following

    async def nodes(self, *, cordoned_only: bool) -> list[Manifest]:
        """Return the nodes, as `swiftlet_operator.nodes.Nodes` requires."""
        return await self._list(NODE, None, {"fieldSelector": "spec.unschedulable=true"} if cordoned_only else {})

    async def list(self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        return await self._list(kind, namespace, {"labelSelector": selector(labels)} if labels else {})

    async def heads(self, kind: Kind, namespace: str | None, labels: Mapping[str, str]) -> Heads:
        query = {"limit": str(PAGE_SIZE), "labelSelector": selector(labels)}
        found: list[Metadata] = []
        while True:
            page = await self._ask("GET", _url(kind, namespace), query, missing=None, accept=_METADATA.format("List"))
            if page is None:
                raise KubeError(f"{kind.plural}: the API server knows no such kind")
            found += [item["metadata"] for item in page.get("items") or []]
            following = page["metadata"].get("continue")
            if not following:
                return found, str(page["metadata"]["resourceVersion"])
            query["continue"] = following

    async def changes(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str], since: str
    ) -> AsyncIterator[tuple[str, Metadata | None]]:
        url = _url(kind, namespace)
        query = {
            "labelSelector": selector(labels),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(WATCH_TIMEOUT_S),
        }
        headers = {**self._login.headers(), "Accept": _METADATA.format("")}
        assert self._session.timeout.total is not None
        # As long as a watch lasts, and then as long as for any other answer.
        timeout = aiohttp.ClientTimeout(total=WATCH_TIMEOUT_S + self._session.timeout.total)
        try:
            async with self._session.get(url, params=query, headers=headers, timeout=timeout) as response:
                if response.status >= 400:
                    raise _error(response.status, f"watching {url}", await response.text())
                async for line in _lines(response.content):
                    yield _change(f"watching {url}", line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeUnavailable(f"watching {url}: {error or type(error).__name__}") from error

    async def serves(self, kind: Kind) -> bool:
        resources = await self._ask("GET", kind.path, missing=None) or {}
        return any(one.get("name") == kind.plural for one in resources.get("resources") or [])

    async def apply(self, manifest: Manifest) -> Manifest:
        query = {"fieldManager": MANAGER, "force": "true"}
        return await self._must("PATCH", _url_of(manifest), query, manifest, "application/apply-patch+yaml")

    async def create(self, manifest: Manifest) -> Manifest:
        url = _url(kind_of(manifest), manifest["metadata"].get("namespace"))
        return await self._must("POST", url, {"fieldManager": MANAGER}, manifest)

    async def replace(self, manifest: Manifest) -> Manifest:
        return await self._must("PUT", _url_of(manifest), {"fieldManager": MANAGER}, manifest)

    async def patch(
        self, kind: Kind, namespace: str, name: str, change: Manifest, subresource: str | None = None
    ) -> Manifest | None:
        url = _url(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        query = {"fieldManager": MANAGER}
        return await self._ask("PATCH", url, query, change, "application/merge-patch+json", missing=None)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, grace_s: int | None = None) -> None:
        options: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        await self._ask("DELETE", _url(kind, namespace, name), None, options, missing=None)

    async def _must(
        self, method: str, url: str, query: Mapping[str, str], body: Any, content_type: str = "application/json"
    ) -> Manifest:
        answer = await self._ask(method, url, query, body, content_type, missing=None)
        if answer is None:
            raise KubeInvalid(f"{method} {url}: the API server knows no such object, kind or namespace")
        return answer

    async def _ask(
        self,
        method: str,
        url: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        *,
        missing: None,
        accept: str = "application/json",
    ) -> Manifest | None:
        """The answer as data; `missing` for 404. What was not even begun because of too many requests is sent again."""
        for _ in range(TRIES - 1):
            try:
                return await self._once(method, url, query, body, content_type, missing=missing, accept=accept)
            except _TooManyRequests as error:
                await asyncio.sleep(error.wait_s)
        return await self._once(method, url, query, body, content_type, missing=missing, accept=accept)

    async def _once(
        self,
        method: str,
        url: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        *,
        missing: None,
        accept: str,
    ) -> Manifest | None:
        headers = {**self._login.headers(), "Accept": accept}
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body).encode()
        try:
            async with self._session.request(method, url, params=query, data=data, headers=headers) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            REQUESTS.labels(method, resource_of(url), "0").inc()
            raise KubeUnavailable(f"{method} {url}: {error or type(error).__name__}") from error
        REQUESTS.labels(method, resource_of(url), str(response.status)).inc()
        if response.status == 429:
            wait_s = _seconds(response.headers.get("Retry-After"))
            raise _TooManyRequests(f"{method} {url}: 429 {text[:_MAX_REASON]}", wait_s)
        if response.status == 404:
            return missing
        if response.status >= 400:
            raise _error(response.status, f"{method} {url}", text)
        answer: Manifest = json.loads(text)
        return answer


class Login:
    """The operator's own credentials, as kopf finds them: a pod's service account, or a kubeconfig."""

    def __init__(self) -> None:
        """Look once; KubeError when there is neither."""
        self._info = log_in()
        self._read_at = time.monotonic()

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._info.server

    def ssl_context(self) -> ssl.SSLContext:
        """What connections trust, and our certificate if that is how we log in."""
        return self._info.as_ssl_context()

    def headers(self) -> dict[str, str]:
        """The Authorization header; read again now and then because tokens expire."""
        if time.monotonic() - self._read_at > LOGIN_LIFE_S:
            self._info, self._read_at = log_in(), time.monotonic()
        return self._info.as_http_headers()


def log_in() -> kopf.ConnectionInfo:
    """How to reach the API server and as whom; KubeError when nothing says so."""
    settings = kopf.OperatorSettings()
    info = kopf.login_with_service_account(logger=_log, settings=settings)
    info = info or kopf.login_with_kubeconfig(logger=_log, settings=settings)
    if info is None:
        raise KubeError("neither a service account nor a kubeconfig was found; set KUBECONFIG")
    return info


@asynccontextmanager
async def connected(timeout_s: float, watches: int = 0) -> AsyncIterator[HttpKube]:
    """A client that waits at most `timeout_s` for an answer; each of `watches` has a connection of its own."""
    login = Login()
    context = await asyncio.to_thread(login.ssl_context)
    async with aiohttp.ClientSession(
        login.server.rstrip("/"),
        connector=aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS + watches),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
    ) as session:
        yield HttpKube(session, login)


class _TooManyRequests(KubeUnavailable):
    """The API server was too busy to begin."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length; what follows the last line's end was cut off and is no line."""
    rest = bytearray()
    async for piece in content.iter_any():
        *whole, last = piece.split(b"\n")
        for line in whole:
            rest += line
            yield bytes(rest)
            rest.clear()
        rest += last


def _change(what: str, line: bytes) -> tuple[str, Metadata | None]:
    """Return the type of a watch's event and the metadata of its object."""
    try:
        event = json.loads(line)
        type_, one = event["type"], event["object"]
        if type_ == "ERROR":
            raise _error(int(one.get("code") or 500), what, json.dumps(one))
        metadata: Metadata = one["metadata"]
        return str(metadata["resourceVersion"]), None if type_ == "BOOKMARK" else metadata
    except (ValueError, LookupError, TypeError) as error:
        raise KubeError(f"{what}: {error!r} in {line[:_MAX_REASON]!r}") from error


def _seconds(text: str | None) -> float:
    """How long to wait, from Retry-After."""
    return min(MAX_WAIT_S, max(0.1, float(text))) if text is not None and text.isdigit() else 1.0


def resource_of(url: str) -> str:
    """The plural of what a path of ours is about, empty for a group of the API server."""
    parts = url.strip("/").split("/")[2 if url.startswith("/api/") else 3 :]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return parts[0] if parts else ""


def _url(kind: Kind, namespace: str | None, name: str | None = None) -> str:
    inside = f"/namespaces/{namespace}" if kind.namespaced and namespace else ""
    return f"{kind.path}{inside}/{kind.plural}" + (f"/{name}" if name else "")


def _url_of(manifest: Manifest) -> str:
    return _url(kind_of(manifest), manifest["metadata"].get("namespace"), name_of(manifest))


def _error(status: int, what: str, text: str) -> KubeError:
    try:
        reason = str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        reason = text
    message = f"{what}: {status} {reason[:_MAX_REASON]}"
    if status in _BUSY:
        return KubeUnavailable(message)
    if status in (401, 403):
        return KubeForbidden(message)
    if status == 409:
        return KubeConflict(message)
    if status in (400, 405, 413, 415, 422):
        return KubeInvalid(message)
    return KubeError(message)
