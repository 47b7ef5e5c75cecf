"""Clients of one region that write, delete and read objects of all policies until they are told to end.

    python -m bench.wan.clients ENDPOINT USER KEY REGION SEED FILE

They run in the region's namespace and write a line of JSON to FILE for each operation, as `bench.wan.judging` reads
them. Names of objects say who writes them: one client each, or the clients of all regions.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from dataclasses import asdict
from hashlib import md5
from pathlib import Path
from typing import TextIO

import aiohttp

from bench.wan.judging import SHARED, Done

POLICIES = ("majority", "local", "each-region")
CLIENTS = 2
"""Clients of each region for each policy."""
NAMES = 150
"""Objects that each client alone writes."""
SHARED_NAMES = 20
"""Objects of each policy that clients of all regions write."""
_LEAST_BYTES, _MOST_BYTES = 16 << 10, 160 << 10
_PAUSE_S = 0.35
"""Seconds between two operations of a client, on the average."""
_PATIENCE_S = 60.0
_REASON_CHARACTERS = 300


class Client:
    """One client of one policy; the container has the policy's name."""

    def __init__(
        self, session: aiohttp.ClientSession, account: str, region: str, policy: str, number: int, out: TextIO
    ) -> None:
        """`session` sends the token; `account` is its URL."""
        self._session = session
        self._account = account
        self._region = region
        self._policy = policy
        self._own = [f"{region}-{number}-{name}" for name in range(NAMES)]
        self._out = out

    async def run(self, chooser: random.Random, told: asyncio.Event) -> None:
        """Write each of its own objects once, then operate until told to end."""
        for name in self._own:
            await self.operate("PUT", name, _body(chooser))
        while not told.is_set():
            await asyncio.sleep(chooser.uniform(0.5, 1.5) * _PAUSE_S)
            is_shared = chooser.random() < 0.15
            name = f"{SHARED}-{chooser.randrange(SHARED_NAMES)}" if is_shared else chooser.choice(self._own)
            method = chooser.choices(["PUT", "DELETE", "GET"], [5, 1, 4])[0]
            await self.operate(method, name, _body(chooser) if method == "PUT" else b"")

    async def operate(self, method: str, name: str, body: bytes) -> None:
        """Make one operation and write down what came of it; it has status 0 without an answer."""
        etag, size = _etag(body) if method == "PUT" else "", len(body)
        status, reason, begun = 0, "", time.monotonic()
        try:
            url = f"{self._account}/{self._policy}/{name}"
            async with self._session.request(method, url, data=body if method == "PUT" else None) as answer:
                received = await answer.read()
                status = answer.status
                if method == "GET" and status == 200:
                    etag, size = _etag(received), len(received)
                    if answer.headers["Etag"] != etag:
                        reason = "the bytes do not have the ETag"
                elif status >= 400:
                    reason = received.decode(errors="replace")[:_REASON_CHARACTERS]
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = repr(error)
        done = Done(self._region, self._policy, name, method, begun, time.monotonic(), status, etag, size, reason)
        self._out.write(json.dumps(asdict(done)) + "\n")


def _body(chooser: random.Random) -> bytes:
    return chooser.randbytes(chooser.randrange(_LEAST_BYTES, _MOST_BYTES))


def _etag(body: bytes) -> str:
    return md5(body, usedforsecurity=False).hexdigest()


async def run(endpoint: str, user: str, key: str, region: str, seed: str, out: TextIO) -> None:
    """Run a region's clients until SIGTERM; each ends the operation that it has begun."""
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        login = {"X-Auth-User": user, "X-Auth-Key": key}
        async with session.get(f"{endpoint}/auth/v1.0", headers=login) as answer:
            answer.raise_for_status()
            session.headers["X-Auth-Token"] = answer.headers["X-Auth-Token"]
        account = f"{endpoint}/v1/AUTH_{user.partition(':')[0]}"
        for policy in POLICIES:
            async with session.put(f"{account}/{policy}", headers={"X-Storage-Policy": policy}) as answer:
                answer.raise_for_status()
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        async with asyncio.TaskGroup() as group:
            for policy in POLICIES:
                for number in range(CLIENTS):
                    client = Client(session, account, region, policy, number, out)
                    group.create_task(client.run(random.Random(f"{seed} {policy} {number}"), told))


def main() -> None:
    """Run what the command line says."""
    endpoint, user, key, region, seed, path = sys.argv[1:]
    with Path(path).open("a", buffering=1) as out:
        asyncio.run(run(endpoint, user, key, region, seed, out))


if __name__ == "__main__":
    main()
