"""Whether all services of a cluster know of moves between policies, by their status reports, and for how long each may
act by what it knew before.

Object and container servers are in the rings. Proxies, metadata servers and replicators are in none, so whoever moves
containers names them; a name with several addresses, as a headless Service has, stands for all of them.

Fault model: a service that can't be asked, or answers anything else, is one that may not know: then nothing goes on.
What is asked over TLS is not verified: the answers have no secrets.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from swiftlet.errors import NodeError, Unavailable
from swiftlet.main.moves_report import FIELD, REMEMBERS
from swiftlet.ring.model import Device
from swiftlet.transport.http_client import NodeClient
from swiftlet.web.statusz import MAX_BYTES

TIMEOUT_S = 10.0
AT_A_TIME = 16
"""Services that are asked at the same time."""
VALID_S = 60.0
"""Seconds for which the answers count, unless they are asked for anew."""
NAMED = 5
"""Services that are named when they hinder a move."""


class KnownMoves:
    """Asks all services; the answers count for a while."""

    def __init__(
        self,
        client: NodeClient,
        devices: Callable[[], Iterable[Device]],
        urls: Sequence[str],
        requests_s: float,
        kinds: Sequence[str] = ("proxy", "replicator"),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`devices` are those of all rings, and `urls` the base URLs of the other services. `requests_s` is how long a
        deletion or a POST may take. `kinds` have to be among the services that answer.
        """
        self._client, self._devices, self._urls = client, devices, urls
        self._requests_s, self._kinds, self._clock = requests_s, kinds, now_s
        self._known: tuple[float, float] | None = None

    async def services_s(self) -> float:
        """Return how many seconds after all replicas of a container show a phase every service acts by it. Raises
        Unavailable, which names the services that may not know of moves.
        """
        now_s = self._clock()
        if self._known is None or now_s - self._known[0] > VALID_S:
            self._known = now_s, await self._ask_all()
        return self._known[1]

    async def _ask_all(self) -> float:
        gate = asyncio.Semaphore(AT_A_TIME)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)

        async def asked(what: str, report: Awaitable[bytes]) -> tuple[str, dict[str, Any] | str]:
            try:
                return what, _parsed(await report)
            except (aiohttp.ClientError, OSError, TimeoutError, NodeError, ValueError) as error:
                return what, str(error) or type(error).__name__

        servers = {f"{device.host}:{device.port}": device for device in self._devices()}
        async with aiohttp.ClientSession(timeout=timeout) as session:
            places = [place for url in self._urls for place in await _addresses(url)]
            answers = await asyncio.gather(
                *(asked(name, self._of_server(gate, device)) for name, device in servers.items()),
                *(asked(url, _of_url(gate, session, url)) for url in places),
            )
        return self._judged(answers)

    def _judged(self, answers: Sequence[tuple[str, dict[str, Any] | str]]) -> float:
        longest_s, problems, kinds = 0.0, list[str](), set[str]()
        for what, report in answers:
            if isinstance(report, str):
                problems.append(f"{what} can't be asked: {report}")
                continue
            kinds.add(str(report.get("service")))
            known = report.get(FIELD)
            remembers_s = known.get(REMEMBERS) if isinstance(known, dict) else None
            if isinstance(remembers_s, int | float) and remembers_s >= 0:
                longest_s = max(longest_s, remembers_s)
            else:
                version = report.get("version")
                problems.append(f"{what} ({report.get('service')} {version}) does not know of moves; upgrade it")
        problems += [f"no {kind} is among the services; name all of them" for kind in self._kinds if kind not in kinds]
        if problems:
            more = f", and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
            raise Unavailable(f"not all services are known to know of moves: {'; '.join(problems[:NAMED])}{more}")
        return longest_s + self._requests_s

    async def _of_server(self, gate: asyncio.Semaphore, device: Device) -> bytes:
        async with gate:
            return await self._client.call(device, "GET", "/statusz", max_answer=MAX_BYTES)


def _parsed(body: bytes) -> dict[str, Any]:
    report = json.loads(body)
    if not isinstance(report, dict):
        raise ValueError("the status report is not an object")
    return report


async def _of_url(gate: asyncio.Semaphore, session: aiohttp.ClientSession, url: str) -> bytes:
    async with gate, session.get(f"{url}/statusz", ssl=False, allow_redirects=False) as answer:
        if answer.status != 200:
            raise ValueError(f"the status report is answered with {answer.status}")
        body = await answer.content.read(MAX_BYTES + 1)
        while len(body) <= MAX_BYTES and (more := await answer.content.read(MAX_BYTES + 1)):
            body += more
        if len(body) > MAX_BYTES:
            raise ValueError(f"the status report has more than {MAX_BYTES} bytes")
        return body


async def _addresses(url: str) -> list[str]:
    """Return the base URL of each address of a name; the URL itself when the name has none."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    try:
        found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError:
        return [url]
    hosts = sorted({str(address[0]) for *_, address in found})
    return [f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port}" for host in hosts]
