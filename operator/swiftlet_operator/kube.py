"""The only module that calls the API server, by the dynamic client of the official `kubernetes` package.

Kinds are known beforehand, so the API server is never asked which ones it has, and answers stay plain data: the
package's models would be most of the operator's memory. The package's watch creates a client with a TLS context of its
own each time, so the stream of a watch is read here. Errors are turned into those of `swiftlet_operator.problems`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, Protocol

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.aio.dynamic import DynamicClient, Resource

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
"""Connections for requests at a time; watches, which keep theirs, have others."""
TRIES = 4
"""How often a request is sent that the API server was too busy for, before the reconcile is tried again later."""
MAX_WAIT_S = 5.0
"""The longest wait in seconds that one answer can cause."""
_MAX_REASON = 500
WATCH_TIMEOUT_S = 300
"""Seconds after which watches are renewed, so that a silent one is noticed; the API server takes whole seconds."""
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_MERGE_PATCH = "application/merge-patch+json"


class Kube(Protocol):
    """The operator's requests to an API server. All methods raise KubeError and its subclasses."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """Return one object, None when there is none."""
        ...

    async def events(self, namespace: str, kind: str, name: str) -> list[Manifest]:
        """Return events of an object, a limited number of them; Kubernetes joins equal ones, so there are few."""
        ...

    async def named(self, kind: Kind, name: str) -> list[Manifest]:
        """Return all objects of this name, of all namespaces."""
        ...

    async def list(self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        """Return all objects of a namespace (of all when None) with these labels; none when the kind is unknown."""
        ...

    async def serves(self, kind: Kind) -> bool:
        """Return whether the API server knows the kind."""
        ...

    async def apply(self, manifest: Manifest) -> Manifest:
        """Apply the manifest server-side: its fields become ours with these values, the rest stays as it is."""
        ...

    async def create(self, manifest: Manifest) -> Manifest:
        """Create the object. Raises KubeConflict when it exists."""
        ...

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace the object. Raises KubeConflict unless its resourceVersion is still the given one."""
        ...

    async def patch(
        self, kind: Kind, namespace: str, name: str, change: Manifest, subresource: str | None = None
    ) -> Manifest | None:
        """Merge a change into the object; return None when it is gone."""
        ...

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, grace_s: int | None = None) -> None:
        """Delete this very object, if it still exists; what depends on it is deleted in the background.

        `grace_s` is the time that a pod gets to end, None for its own; with 0 its node is not asked.
        """
        ...


Metadata = Mapping[str, Any]
"""The `metadata` of an object."""
Heads = tuple[list[Metadata], str]
"""The metadata of objects, and the version of their list."""


class Watching(Protocol):
    """The operator's watches of an API server. All methods raise KubeError and its subclasses."""

    async def heads(self, kind: Kind, namespace: str | None, labels: Mapping[str, str]) -> Heads:
        """Return the metadata of all objects of a namespace (of all when None) with these labels, and the list's
        version.
        """
        ...

    def changes(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str], since: str
    ) -> AsyncIterator[tuple[str, Metadata | None]]:
        """Yield versions after `since` as they come, each with the metadata of the object that was created, changed or
        deleted.

        The metadata is None for a version at which nothing has changed. It ends after a time. Raises KubeUnavailable
        when the connection ends earlier, and another KubeError when the API server has forgotten that version.
        """
        ...


_Call = Callable[..., Awaitable[Any]]
"""A method of the dynamic client."""


class HttpKube:
    """The API server over HTTP."""

    def __init__(self, client: ApiClient, timeout_s: float) -> None:
        """Wait at most `timeout_s` for an answer; `client` has the server's address and our credentials."""
        self._client = client
        self._dynamic = DynamicClient(client)
        self._timeout_s = timeout_s

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        return await self._get(kind, namespace, name=name)

    async def events(self, namespace: str, kind: str, name: str) -> list[Manifest]:
        chosen = f"involvedObject.kind={kind},involvedObject.name={name}"
        page = await self._get(EVENT, namespace, field_selector=chosen, limit=MOST_EVENTS)
        return list((page or {}).get("items") or [])

    async def named(self, kind: Kind, name: str) -> list[Manifest]:
        return await self._list(kind, None, field_selector=f"metadata.name={name}")

    async def _list(self, kind: Kind, namespace: str | None, **chosen: Any) -> list[Manifest]:
        found: list[Manifest] = []
        async for page in self._pages(kind, namespace, **chosen):
            # Items of a list come without their kind.
            found += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page.get("items") or []]
        return found

    async def _pages(self, kind: Kind, namespace: str | None, **chosen: Any) -> AsyncIterator[Manifest]:
        """Yield pages of a list; none when the API server does not know the kind."""
        following: str | None = None
        while True:
            page = await self._get(kind, namespace, limit=PAGE_SIZE, _continue=following, **chosen)
            if page is None:
                return
            yield page
            following = page["metadata"].get("continue")
            if not following:
                return

    async def nodes(self, *, cordoned_only: bool) -> list[Manifest]:
        """Return the nodes, as `swiftlet_operator.nodes.Nodes` requires."""
        return await self._list(NODE, None, field_selector="spec.unschedulable=true" if cordoned_only else None)

    async def list(self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        return await self._list(kind, namespace, label_selector=selector(labels) if labels else None)

    async def heads(self, kind: Kind, namespace: str | None, labels: Mapping[str, str]) -> Heads:
        found: list[Metadata] = []
        version: str | None = None
        only_metadata = {"Accept": _METADATA.format("List")}
        async for page in self._pages(kind, namespace, label_selector=selector(labels), header_params=only_metadata):
            found += [item["metadata"] for item in page.get("items") or []]
            version = str(page["metadata"]["resourceVersion"])
        if version is None:
            raise KubeError(f"{kind.plural}: the API server knows no such kind")
        return found, version

    async def changes(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str], since: str
    ) -> AsyncIterator[tuple[str, Metadata | None]]:
        what = f"watching {kind.plural}"
        try:
            response = await self._dynamic.get(
                _resource(kind),
                namespace=namespace,
                label_selector=selector(labels),
                watch=True,
                query_params=[("allowWatchBookmarks", "true")],
                resource_version=since,
                timeout_seconds=WATCH_TIMEOUT_S,
                header_params={"Accept": _METADATA.format("")},
                serialize=False,
                # As long as a watch lasts, and then as long as for any other answer.
                _request_timeout=aiohttp.ClientTimeout(total=WATCH_TIMEOUT_S + self._timeout_s),
            )
            async with response:
                async for line in _lines(response.content):
                    yield _change(what, line)
        except ApiException as error:
            raise _error(int(error.status), what, error.body or "") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeUnavailable(f"{what}: {error or type(error).__name__}") from error

    async def serves(self, kind: Kind) -> bool:
        resources = await self._ask("GET", kind, kind.path, self._dynamic.request, "get", kind.path) or {}
        return any(one.get("name") == kind.plural for one in resources.get("resources") or [])

    async def apply(self, manifest: Manifest) -> Manifest:
        return await self._write("PATCH", manifest, self._dynamic.server_side_apply, force_conflicts=True)

    async def create(self, manifest: Manifest) -> Manifest:
        return await self._write("POST", manifest, self._dynamic.create)

    async def replace(self, manifest: Manifest) -> Manifest:
        return await self._write("PUT", manifest, self._dynamic.replace)

    async def patch(
        self, kind: Kind, namespace: str, name: str, change: Manifest, subresource: str | None = None
    ) -> Manifest | None:
        path = _resource(kind).path(name, namespace) + (f"/{subresource}" if subresource else "")
        request = self._dynamic.request
        named = {"body": change, "content_type": _MERGE_PATCH, "field_manager": MANAGER}
        return await self._ask("PATCH", kind, path, request, "patch", path, **named)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, grace_s: int | None = None) -> None:
        options: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        resource = _resource(kind)
        path = resource.path(name, namespace)
        await self._ask("DELETE", kind, path, self._dynamic.delete, resource, name, namespace, options)

    async def _get(self, kind: Kind, namespace: str | None, **named: Any) -> Manifest | None:
        resource = _resource(kind)
        path = resource.path(named.get("name"), namespace)
        return await self._ask("GET", kind, path, self._dynamic.get, resource, namespace=namespace, **named)

    async def _write(self, method: str, manifest: Manifest, call: _Call, **named: Any) -> Manifest:
        kind, namespace = kind_of(manifest), manifest["metadata"].get("namespace")
        resource = _resource(kind)
        path = resource.path(None if method == "POST" else name_of(manifest), namespace)
        answer = await self._ask(method, kind, path, call, resource, body=manifest, field_manager=MANAGER, **named)
        if answer is None:
            raise KubeInvalid(f"{method} {path}: the API server knows no such object, kind or namespace")
        return answer

    async def _ask(
        self, method: str, kind: Kind, path: str, call: _Call, *arguments: Any, **named: Any
    ) -> Manifest | None:
        """Return the answer as data, None for 404. A request that was refused because of too many is sent again."""
        once = partial(self._once, method, kind, path, partial(call, *arguments, **named))
        for _ in range(TRIES - 1):
            try:
                return await once()
            except _TooManyRequests as error:
                await asyncio.sleep(error.wait_s)
        return await once()

    async def _once(self, method: str, kind: Kind, path: str, call: _Call) -> Manifest | None:
        what = f"{method} {path}"
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        try:
            response = await call(serialize=False, _request_timeout=timeout)
            async with response:
                text = await response.read()
        except ApiException as error:
            REQUESTS.labels(method, kind.plural, str(error.status)).inc()
            if error.status == 404:
                return None
            body = error.body or ""
            if error.status == 429:
                wait_s = _seconds((error.headers or {}).get("Retry-After"))
                raise _TooManyRequests(f"{what}: 429 {body[:_MAX_REASON]}", wait_s) from error
            raise _error(int(error.status), what, body) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            REQUESTS.labels(method, kind.plural, "0").inc()
            raise KubeUnavailable(f"{what}: {error or type(error).__name__}") from error
        REQUESTS.labels(method, kind.plural, str(response.status)).inc()
        answer: Manifest = json.loads(text)
        return answer


@asynccontextmanager
async def connected(timeout_s: float, watches: int = 0) -> AsyncIterator[HttpKube]:
    """Yield a client that waits at most `timeout_s` for an answer; each of `watches` has a connection of its own.

    Raises KubeError when there is neither a service account nor a kubeconfig. A service account's token is read again
    every minute, as it changes on disk.
    """
    configuration = Configuration()
    try:
        load_incluster_config(configuration)
    except ConfigException:
        try:
            await load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=configuration)
        except ConfigException as error:
            raise KubeError("neither a service account nor a kubeconfig was found; set KUBECONFIG") from error
    configuration.connection_pool_maxsize = CONNECTIONS + watches
    # This is what kopf does, which talks to the same server.
    configuration.client_session_kwargs = {"trust_env": False}
    # The client reads certificates from disk.
    client = await asyncio.to_thread(ApiClient, configuration)
    client.user_agent = MANAGER
    async with client:
        yield HttpKube(client, timeout_s)


class _TooManyRequests(KubeUnavailable):
    """The API server was too busy to begin."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of any length; an incomplete last line was cut off and is left out."""
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
    """Return how long to wait, from Retry-After."""
    return min(MAX_WAIT_S, max(0.1, float(text))) if text is not None and text.isdigit() else 1.0


@cache
def _resource(kind: Kind) -> Resource:
    group, _, version = kind.api_version.rpartition("/")
    return Resource("apis" if group else "api", group, version, kind.kind, kind.namespaced, name=kind.plural)


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
