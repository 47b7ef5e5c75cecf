"""PUTs of objects that expire, through the front: what devices, listing and queue have is what Python leaves there, and
no device has an object without a task for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from urllib.parse import quote

import pytest

from swiftlet.api.tests.proxy import Answer
from swiftlet.errors import NotFound
from swiftlet.expiry.tests.support import all_tasks
from swiftlet.front.tests.conftest import BY_FRONT, PATIENCE_S, FrontedProxy
from swiftlet.front.tests.test_writes import OF_ONE_ANSWER, TYPE, listed, native
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster
from swiftlet.timestamp import Timestamp

pytestmark = pytest.mark.parametrize(("cluster", "scheme"), [(BY_FRONT, "http"), (BY_FRONT, "https")], indirect=True)
COLD = {"X-Trans-Id-Extra": "cold"}
"""A header that makes a request Python's and changes nothing."""
FAR = "4000000000"


async def by_front(fronted: FrontedProxy, name: str, headers: dict[str, str], data: bytes = b"data") -> Answer:
    """The answer once the front is the one that gives it, and has the object replace none."""
    path = f"c/{quote(name)}"
    assert (await fronted.proxy.call("PUT", "c/heating", TYPE, b"heating")).status == 201
    async with asyncio.timeout(PATIENCE_S):
        while True:
            before = await fronted.noted()
            answer = await fronted.proxy.call("PUT", path, TYPE | headers, data)
            assert answer.status == 201, answer
            if await fronted.noted() > before:
                return answer
            # What expires is replaced by Python.
            assert (await fronted.proxy.call("DELETE", path, COLD)).status == 204
            # A connection that is handed over again and again stays with Python, unless the front answers in between.
            await fronted.read("c/heating")


async def tasks(cluster: MemoryCluster, name: str) -> list[tuple[int, int, Timestamp]]:
    found = [task for task in await all_tasks(cluster) if task.path == Path(ACCOUNT, CONTAINER, name)]
    return [(task.delete_at, task.policy, task.queued) for task in found]


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Delete-At": FAR},
        {"x-delete-at": "04000000", "X-Delete-After": "1000"},
        {"X-Delete-After": "9999999999", "X-Object-Meta-A": "b", "Content-Encoding": "x"},
        {"X-Delete-At": "9999999999", "X-Object-Meta-B": "c"},
    ],
    ids=["at", "both", "latest", "at the latest"],
)
async def test_each_twice(fronted: FrontedProxy, cluster: MemoryCluster, headers: dict[str, str]) -> None:
    warm, cold = "warm ä?/~-_.%", "cold ä?/~-_.%"
    answers = [
        await by_front(fronted, warm, headers),
        await fronted.proxy.call("PUT", f"c/{quote(cold)}", TYPE | headers | COLD, b"data"),
    ]
    assert [answer.status for answer in answers] == [201, 201]
    plain = [{k: v for k, v in answer.headers.items() if k not in OF_ONE_ANSWER} for answer in answers]
    assert plain[0] == plain[1]
    shown = [
        await fronted.read(f"c/{quote(name)}", method=method) for name in (warm, cold) for method in ("GET", "HEAD")
    ]
    goes = [int(answer.headers["X-Delete-At"]) for answer in shown]
    assert max(goes) - min(goes) <= 10, "those of X-Delete-After begin when each is stored"
    of_each = OF_ONE_ANSWER | {"X-Timestamp", "X-Delete-At"}
    first, *others = [[(k, v) for k, v in answer.headers.items() if k not in of_each] for answer in shown]
    assert all(other == first for other in others)
    names = [list(answer.headers).index("X-Delete-At") for answer in shown]
    assert len(set(names)) == 1
    rows = await listed(fronted)
    assert rows[warm]["hash"] == rows[cold]["hash"]
    versions = set()
    for name, goes_at in ((warm, goes[0]), (cold, goes[2])):
        info = await fronted.proxy.api.objects.head(Path(ACCOUNT, CONTAINER, name), 0)
        versions.add(info.modified)
        # Where the front began what Python then stored, there is one more task, for a version that is gone.
        assert [task for task in await tasks(cluster, name) if task[2] >= info.modified] == [
            (goes_at, 0, info.modified)
        ]
        assert (await fronted.proxy.call("DELETE", f"c/{quote(name)}")).status == 204
    left = {task.queued for task in await all_tasks(cluster)}
    assert not left & versions, "both are taken off by their names"


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Delete-At": "1"},
        {"X-Delete-At": "-5"},
        {"X-Delete-At": "soon"},
        {"X-Delete-At": ""},
        {"X-Delete-After": "0"},
        {"X-Delete-After": "-1"},
        {"X-Delete-After": "1.5"},
        {"X-Delete-After": "", "X-Delete-At": FAR},
        {"X-Delete-At": FAR, "ETag": "0" * 32},
    ],
)
async def test_refused_as_by_python(fronted: FrontedProxy, cluster: MemoryCluster, headers: dict[str, str]) -> None:
    await by_front(fronted, "warm", {"X-Delete-At": FAR})
    known = await all_tasks(cluster)
    before = fronted.answered
    one = await fronted.proxy.call("PUT", "c/o", TYPE | headers, b"data")
    two = await fronted.proxy.call("PUT", "c/o", TYPE | headers | COLD, b"data")
    assert (one.status, one.body) == (two.status, two.body)
    assert one.status in {400, 422}
    assert fronted.answered == before
    assert await all_tasks(cluster) == known
    assert (await fronted.proxy.call("GET", "c/o")).status == 404


async def test_what_goes_soon_is_pythons(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """Which queues it once more when it is stored."""
    await by_front(fronted, "warm", {"X-Delete-At": FAR})
    before = fronted.answered
    for number, headers in enumerate(({"X-Delete-After": "30"}, {"X-Delete-At": str(int(time.time()) + 30)})):
        assert (await fronted.proxy.call("PUT", f"c/{number}", TYPE | headers, b"data")).status == 201
        assert len(await tasks(cluster, str(number))) == 1
    assert fronted.answered == before


async def test_what_is_replaced(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """By one that expires: what doesn't is replaced by the front, what does by Python. One task is left."""
    await by_front(fronted, "warm", {"X-Delete-At": FAR})
    async with asyncio.timeout(PATIENCE_S):
        while True:
            assert (await fronted.proxy.call("PUT", "c/o", TYPE, b"old")).status == 201
            # By the front, as the next one may be: a connection stays with Python after what only Python knows.
            await fronted.read("c/heating")
            before = await fronted.noted()
            assert (await fronted.proxy.call("PUT", "c/o", TYPE | {"X-Delete-At": FAR}, b"new")).status == 201
            if await fronted.noted() > before:
                break
    before = fronted.answered
    for goes_at in (4000000001, 4000000002):
        headers = TYPE | {"X-Delete-At": str(goes_at)}
        assert (await fronted.proxy.call("PUT", "c/o", headers, b"newer")).status == 201
        assert [at for at, _, _ in await tasks(cluster, "o")] == [goes_at]
    assert fronted.answered == before
    assert (await fronted.proxy.call("GET", "c/o")).headers["X-Delete-At"] == "4000000002"


async def test_the_queue_is_not_taken(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """Container servers are gone, natively: Python queues the task before it stores the object."""
    await by_front(fronted, "warm", {"X-Delete-At": FAR})
    assert fronted.containers is not None
    fronted.containers.stop()
    for name in ("one", "two"):
        assert (await fronted.proxy.call("PUT", f"c/{name}", TYPE | {"X-Delete-At": FAR}, b"data")).status == 201
        info = await fronted.proxy.api.objects.head(Path(ACCOUNT, CONTAINER, name), 0)
        assert (4000000000, 0, info.modified) in await tasks(cluster, name)


async def test_devices_that_refuse(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    """Python makes a newer version, with a task of its own; that of the attempt before is found obsolete when due."""
    await by_front(fronted, "warm", {"X-Delete-At": FAR})
    path = Path(ACCOUNT, CONTAINER, "o")
    ahead = fronted.proxy.api.clock.next().value + (30 * 100_000 << 14)
    for device in cluster.primaries(path)[1:]:
        with contextlib.suppress(NotFound):  # Of what it has deleted it says that it was not there.
            native(cluster, device).delete(cluster.key(path), Timestamp(ahead), str(path))
    assert (await fronted.proxy.call("PUT", "c/o", TYPE | {"X-Delete-At": FAR}, b"x")).status == 201
    assert (await fronted.proxy.call("GET", "c/o")).body == b"x"
    info = await fronted.proxy.api.objects.head(path, 0)
    assert (4000000000, 0, info.modified) in await tasks(cluster, "o")


async def test_many_at_once(fronted: FrontedProxy, cluster: MemoryCluster) -> None:
    await by_front(fronted, "warm", {"X-Delete-At": FAR})
    before = fronted.answered

    async def some(client: int) -> None:
        for number in range(10):
            name = f"c/{client}-{number}"
            assert (await fronted.proxy.call("PUT", name, TYPE | {"X-Delete-After": "5000"}, b"data")).status == 201

    await asyncio.gather(*(some(client) for client in range(8)))
    assert fronted.answered > before
    assert len({task.path for task in await all_tasks(cluster)}) == 81
    assert len(await listed(fronted)) == 82
