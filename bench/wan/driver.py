"""What a client in one region measures; runs in its namespace and prints one JSON object.

    python -m bench.wan.driver ENDPOINT USER KEY ROUNDS LARGE_MIB THREADS

Small operations go one at a time over one warm connection, so that their latency is round trips and local time.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import aiohttp

_SMALL = bytes(10 << 10)
_LARGE_PER_THREAD = 2


async def measure(endpoint: str, user: str, key: str, rounds: int, large_mib: int, threads: int) -> dict[str, object]:
    """Return the milliseconds of small operations, and the MiB/s of large ones."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
        login = {"X-Auth-User": user, "X-Auth-Key": key}
        async with session.get(f"{endpoint}/auth/v1.0", headers=login) as answer:
            answer.raise_for_status()
            token, account = answer.headers["X-Auth-Token"], f"{endpoint}/v1/AUTH_{user.partition(':')[0]}"

        async def request(method: str, path: str, data: bytes | None = None) -> None:
            headers = {"X-Auth-Token": token}
            async with session.request(method, f"{account}/{path}", data=data, headers=headers) as answer:
                answer.raise_for_status()
                async for _ in answer.content.iter_chunked(1 << 20):
                    pass

        await request("PUT", "wan")
        # The first of each kind make connections and fill caches; they are reported by themselves.
        small = {
            "PUT 10 KiB": await _times(lambda n: request("PUT", f"wan/s{n}", _SMALL), rounds),
            "GET 10 KiB": await _times(lambda n: request("GET", f"wan/s{n}"), rounds),
            "HEAD": await _times(lambda n: request("HEAD", f"wan/s{n}"), rounds),
            "listing": await _times(lambda _: request("GET", "wan"), rounds),
            "DELETE": await _times(lambda n: request("DELETE", f"wan/s{n}"), rounds),
        }
        body = bytes(large_mib << 20)
        count = threads * _LARGE_PER_THREAD
        large = {
            f"PUT {large_mib} MiB": await _rate(lambda n: request("PUT", f"wan/l{n}", body), count, threads, large_mib),
            f"GET {large_mib} MiB": await _rate(lambda n: request("GET", f"wan/l{n}"), count, threads, large_mib),
        }
        for number in range(count):
            await request("DELETE", f"wan/l{number}")
        return {"small_ms": small, "large_mib_s": large}


async def _times(work: Callable[[int], Awaitable[None]], rounds: int) -> dict[str, float]:
    taken = []
    for number in range(rounds):
        began = time.perf_counter()
        await work(number)
        taken.append((time.perf_counter() - began) * 1e3)
    first, *others = taken
    return {"first": first, "least": min(others), "median": statistics.median(others), "most": max(others)}


async def _rate(work: Callable[[int], Awaitable[None]], count: int, threads: int, mib: int) -> float:
    """Return the MiB/s of `count` objects, `threads` of them at a time."""
    numbers = iter(range(count))

    async def one_thread() -> None:
        for number in numbers:
            await work(number)

    began = time.perf_counter()
    await asyncio.gather(*(one_thread() for _ in range(threads)))
    return count * mib / (time.perf_counter() - began)


if __name__ == "__main__":
    endpoint, user, key, rounds, mib, threads = sys.argv[1:]
    print(json.dumps(asyncio.run(measure(endpoint, user, key, int(rounds), int(mib), int(threads)))))
