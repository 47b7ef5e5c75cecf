"""Accounts, containers, listings, copies and manifests: what is asked of proxies over HTTP, whatever way objects go."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from swiftlet.client.attempts import Attempts
from swiftlet.client.bodies import Body, BytesBody
from swiftlet.client.errors import ClientError, PreconditionFailed, StatusError, status_error
from swiftlet.client.http import Http, written
from swiftlet.client.values import AccountInfo, ContainerInfo, Entry, ObjectRequest, Written

_JSON = {"format": "json"}
_PAGE_ROWS = 10_000
"""Swift's usual limit; a store whose limit is lower is asked for it when it refuses."""


class Account:
    """An account over HTTP. Requests are repeated after failures that may pass."""

    def __init__(self, http: Http, attempts: Attempts) -> None:
        """Use these requests, and the budget of `attempts`."""
        self._http = http
        self._attempts = attempts
        self._limits: dict[str, Any] | None = None
        self._page_rows = _PAGE_ROWS

    async def call(
        self,
        method: str,
        path: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        is_conditional: bool = False,
    ) -> tuple[Mapping[str, str], bytes]:
        """Return the headers and the body of the answer to a request."""

        async def once() -> tuple[Mapping[str, str], bytes]:
            async with self._http.request(method, path, query=query, headers=headers, body=body) as answer:
                return answer.headers, await answer.read()

        return await self._attempts.run(once, is_conditional=is_conditional)

    async def info(self) -> AccountInfo:
        """Return what the store tells of the account."""
        headers, _ = await self.call("HEAD")
        return AccountInfo.from_headers(headers)

    async def update(self, headers: Mapping[str, str]) -> None:
        """Change the account's metadata."""
        await self.call("POST", headers=headers)

    async def capabilities(self) -> dict[str, Any]:
        """Return what `/info` says: the limits in force, and the features."""
        storage_url = await self._http.storage_url()
        base = storage_url.partition("/v1/")[0]

        async def once() -> bytes:
            return await self._http.fetch(f"{base}/info")

        return dict(json.loads(await self._attempts.run(once)))

    async def limit(self, section: str, name: str, usual: int) -> int:
        """Return a limit of `/info`, or the usual one where there is none."""
        if self._limits is None:
            try:
                self._limits = await self.capabilities()
            except (StatusError, ValueError):
                self._limits = {}
        return int(self._limits.get(section, {}).get(name, usual))

    async def containers(self, prefix: str = "", marker: str = "") -> AsyncGenerator[ContainerInfo, None]:
        """Yield the account's containers, by name."""
        async for row in self._pages("", {"prefix": prefix, "marker": marker}):
            yield ContainerInfo(
                name=row["name"], objects=row["count"], size=row["bytes"], policy=row.get("storage_policy", "")
            )

    async def container(self, name: str) -> ContainerInfo:
        """Return what the store tells of a container."""
        headers, _ = await self.call("HEAD", name)
        return ContainerInfo.from_headers(name, headers)

    async def create_container(self, name: str, headers: Mapping[str, str]) -> None:
        """Create a container; no harm if it is there."""
        await self.call("PUT", name, headers=headers)

    async def update_container(self, name: str, headers: Mapping[str, str]) -> None:
        """Change a container's metadata."""
        await self.call("POST", name, headers=headers)

    async def delete_container(self, name: str) -> None:
        """Delete an empty container."""

        async def once() -> None:
            async with self._http.request("DELETE", name):
                pass

        await self._attempts.delete(once)

    async def entries(self, container: str, query: Mapping[str, str]) -> AsyncGenerator[Entry, None]:
        """Yield the entries of a container, by name."""
        async for row in self._pages(container, query):
            yield Entry.from_json(row)

    async def _pages(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the rows of a listing; a page that is not full is the last one."""
        asked = {**_JSON, **{name: value for name, value in query.items() if value}}
        left = int(asked["limit"]) if "limit" in asked else None
        while left is None or left > 0:
            size = self._page_rows if left is None else min(left, self._page_rows)
            try:
                _, body = await self.call("GET", path, query={**asked, "limit": str(size)})
            except PreconditionFailed:
                allowed = await self.limit("swift", "container_listing_limit", self._page_rows)
                if allowed >= size:
                    raise
                self._page_rows = allowed
                continue
            rows = json.loads(body) if body else []
            for row in rows:
                yield row
            if len(rows) < size:
                return
            if left is not None:
                left -= len(rows)
            last = rows[-1]
            asked["marker"] = last.get("name") or last["subdir"]
            if "version_id" in last:
                asked["version_marker"] = last["version_id"]

    async def update_object(self, request: ObjectRequest) -> None:
        """Replace an object's metadata."""
        is_conditional = any(name.lower().startswith("if-") for name in request.headers)
        await self.call(
            "POST", str(request), headers=request.headers, query=request.query, is_conditional=is_conditional
        )

    async def copy(self, source: ObjectRequest, container: str, name: str) -> Written:
        """Copy an object within the store."""
        headers = {**source.headers, "Destination": quote(f"{container}/{name}")}
        answer, _ = await self.call("COPY", str(source), headers=headers, query=source.query)
        return written(answer, 0)

    async def put_manifest(
        self, request: ObjectRequest, segments: Iterable[Mapping[str, object]], failures: list[ClientError]
    ) -> Written:
        """Make a static large object of segments; the errors of all attempts that failed are added to `failures`."""
        body = BytesBody(json.dumps(list(segments)).encode())
        query = {**request.query, "multipart-manifest": "put"}

        async def once() -> Written:
            try:
                async with self._http.request(
                    "PUT", str(request), query=query, headers=request.headers, body=body
                ) as answer:
                    return written(answer.headers, 0)
            except ClientError as error:
                failures.append(error)
                raise

        is_conditional = any(name.lower().startswith("if-") for name in request.headers)
        return await self._attempts.run(once, is_conditional=is_conditional)

    async def manifest(self, request: ObjectRequest) -> list[dict[str, Any]]:
        """Return the manifest of a static large object, as it is stored; empty if it is none."""
        query = {**request.query, "multipart-manifest": "get"}
        headers, body = await self.call("GET", str(request), query=query)
        if headers.get("X-Static-Large-Object", "").lower() != "true":
            return []
        return list(json.loads(body))

    async def delete_with_segments(self, request: ObjectRequest) -> None:
        """Delete a static large object and its segments."""
        headers = {**request.headers, "Accept": "application/json"}
        query = {**request.query, "multipart-manifest": "delete"}
        _, body = await self.call("DELETE", str(request), headers=headers, query=query)
        report = json.loads(body)
        status = int(str(report.get("Response Status", "200"))[:3])
        if report.get("Number Not Found") and not report.get("Number Deleted"):
            status = 404
        if status >= 400:
            raise status_error(status, _first_error(report), f"DELETE {request}")


def _first_error(report: Mapping[str, Any]) -> str:
    errors = report.get("Errors") or []
    named = "; ".join(f"{name}: {status}" for name, status in errors[:3])
    return named or str(report.get("Response Body") or report.get("Response Status"))
