"""Containers that are split while clients write and list, and container servers are killed.

Fault model: SIGKILL of one container server at a time, at random moments, started again within seconds; sometimes the
next one dies before the first has caught up. Rows that are never touched must be in every listing that is answered at
all, and what was never written in none; in the end listings and totals are exactly what was acknowledged.

`SPLIT_SECONDS` and `SEED` make it longer and other than usual (`make splits`).
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest

from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.rows import bring_rows
from e2e.standalone.threads import at_work
from e2e.standalone.wire import Answer, Client
from swiftlet.listing.tests.test_query import naive
from swiftlet.model import ListingQuery, ObjectRow
from swiftlet.timestamp import Timestamp

SECONDS = float(os.environ.get("SPLIT_SECONDS", "5"))
SEED = int(os.environ.get("SEED", "1"))
ABOVE_ROWS = 400
SPLIT_EARLY = {"SWIFTLET_CONTAINER__SHARD_ABOVE_ROWS": str(ABOVE_ROWS), "SWIFTLET_CONTAINER__SHARD_TAKEOVER_S": "5"}
STILL = 1600
"""Rows that are there from the beginning and stay."""
NAMES = 100 if SECONDS < 60 else 250
"""How many objects a writer changes."""
PAUSE_S = 2.5 if SECONDS < 60 else 6.0
"""The longest pause between two kills, in seconds."""
KILLS = 4 if SECONDS < 60 else 5
"""At least, however slow the machine is."""
SPLITS = 3
"""Splits that must be done in the end."""
SETTLE_S = 120.0
LISTINGS = 15 if SECONDS < 60 else 30
"""Each asks one of three replicas at random: not to have asked one of them in the end has a chance of 1 in 150, or in
60,000.
"""
CONTAINER = "split"
SERVERS = [f"container-{number}" for number in range(1, 4)]
DIRECTORIES = 12
LISTING_PAUSE_S = 0.1
STEP_PAUSE_S = 0.03 if SECONDS < 60 else 0.01
"""Between two requests of a writer: what matters is when servers die, not how busy the machine is."""


@pytest.fixture
def splitting(tmp_path: Path) -> Iterator[Cluster]:
    """A store whose container servers split early."""
    running = start_cluster(tmp_path / "store", settings=SPLIT_EARLY)
    yield running
    running.stop()


def still_names() -> list[str]:
    return [f"d{number % DIRECTORIES:02}/still-{number:05}" for number in range(STILL)]


async def bring_still_rows(cluster: Cluster, account: str, deleted: bool = False) -> None:
    """Rows at all three holders, as object servers bring them."""
    at = Timestamp.at(time.time())
    rows = [ObjectRow(name, at, 3, "e" * 32, "text/plain", deleted) for name in still_names()]
    await bring_rows(cluster, account, CONTAINER, rows)


@dataclass
class Writer:
    """Puts and deletes objects of its own, and knows what was acknowledged."""

    client: Client
    number: int
    randomness: random.Random
    listed: dict[str, int] = field(default_factory=dict)
    """Sizes of what was put."""
    doubtful: set[str] = field(default_factory=set)
    """Whose last request came to no good end."""
    ever: set[str] = field(default_factory=set)
    answers: dict[int, int] = field(default_factory=dict)

    def step(self) -> None:
        """Write or delete one object."""
        number = self.randomness.randrange(NAMES)
        name = f"d{number % DIRECTORIES:02}/w{self.number}-{number:04}"
        gone = name in self.listed and self.randomness.random() < 0.45
        self.change(name, None if gone else bytes(self.randomness.randrange(9)))

    def change(self, name: str, body: bytes | None) -> None:
        """Put it, or delete it."""
        self.ever.add(name)
        self.doubtful.add(name)
        path = f"{CONTAINER}/{name}"
        try:
            answer = self.client.call("DELETE", path) if body is None else self.client.call("PUT", path, body=body)
        except (OSError, http.client.HTTPException):
            return
        self.answers[answer.status] = self.answers.get(answer.status, 0) + 1
        if body is None and answer.status in {204, 404}:
            self.listed.pop(name, None)
        elif body is not None and answer.status == 201:
            self.listed[name] = len(body)
        else:
            assert answer.status == 503, answer
            return
        self.doubtful.discard(name)

    def clear_up(self) -> None:
        """Bring to a good end what has come to none."""
        deadline = time.monotonic() + SETTLE_S
        while self.doubtful:
            assert time.monotonic() < deadline, (self.doubtful, self.answers)
            for name in sorted(self.doubtful):
                self.change(name, b"again" if self.randomness.random() < 0.5 else None)


def page_of(answer: Answer) -> list[str]:
    return [f"<{entry['subdir']}>" if "subdir" in entry else entry["name"] for entry in answer.json()]


def asked(query: ListingQuery) -> str:
    fields = {"format": "json", "limit": str(query.limit)}
    for name in ("marker", "end_marker", "prefix", "delimiter"):
        fields |= {name: value} if (value := getattr(query, name)) else {}
    if query.path is not None:
        fields["path"] = query.path
    if query.reverse:
        fields["reverse"] = "true"
    return urlencode(fields)


class Lister:
    """Pages through the container, and checks what must hold whatever is being moved or away."""

    def __init__(self, client: Client, writers: list[Writer], randomness: random.Random) -> None:
        self.client = client
        self.writers = writers
        self.randomness = randomness
        self.still = set(still_names())
        self.whole = 0
        """Listings that were read to their end."""
        self.refused = 0

    def step(self) -> None:
        """List the container once, page by page, and check what is listed."""
        reverse, limit, marker = self.randomness.random() < 0.5, self.randomness.choice([300, 1000, 10_000]), ""
        seen: list[str] = []
        while True:
            query = ListingQuery(limit=limit, marker=marker, reverse=reverse)
            answer = self.client.call("GET", CONTAINER, query=asked(query))
            if answer.status != 200:
                assert answer.status == 503, answer
                self.refused += 1
                return
            page = page_of(answer)
            if not page:
                break
            seen += page
            marker = page[-1]
        assert seen == sorted(set(seen), reverse=reverse), "a listing is out of order or shows a name twice"
        lost = self.still.difference(seen)
        assert not lost, f"{len(lost)} rows were left out, {min(lost)} to {max(lost)}"
        ever = self.still.union(*(writer.ever.copy() for writer in self.writers))
        assert ever.issuperset(seen)
        self.whole += 1
        time.sleep(LISTING_PAUSE_S)


def statusz(cluster: Cluster, service: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", cluster.services[service]["port"], timeout=30)
    try:
        connection.request("GET", "/statusz")
        response = connection.getresponse()
        return Answer(response.status, dict(response.headers.items()), response.read())
    finally:
        connection.close()


def wait_for(condition: Callable[[], str], within_s: float) -> None:
    """Until it says nothing."""
    deadline = time.monotonic() + within_s
    while trouble := condition():
        assert time.monotonic() < deadline, trouble
        time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.timeout(600 + int(2 * SECONDS))
def test_containers_are_split_while_their_servers_are_killed(splitting: Cluster) -> None:
    randomness = random.Random(SEED)
    client = Client(splitting.endpoint, splitting.user, splitting.key)
    assert client.call("PUT", CONTAINER).status == 201
    account = client.account
    asyncio.run(bring_still_rows(splitting, account))
    writers = [Writer(client, number, random.Random(SEED * 100 + number)) for number in range(5)]
    listers = [Lister(client, writers, random.Random(SEED * 100 + 50 + number)) for number in range(2)]

    kills = 0
    with at_work([*(writer.step for writer in writers), *(lister.step for lister in listers)], STEP_PAUSE_S) as over:
        until = time.monotonic() + SECONDS
        while (time.monotonic() < until or kills < KILLS) and not over.wait(randomness.uniform(0.1, PAUSE_S)):
            service = randomness.choice(SERVERS)
            splitting.kill(service)
            kills += 1
            over.wait(randomness.choice([0.0, 0.0, 1.0, 4.0]))
            splitting.start(service)
    with ThreadPoolExecutor(len(writers)) as pool:
        for done in [pool.submit(writer.clear_up) for writer in writers]:
            done.result()
    answers = [writer.answers for writer in writers]
    print(f"{kills} kills, {answers}, {[(one.whole, one.refused) for one in listers]} listings read and refused")
    assert all(lister.whole for lister in listers)
    sizes = dict.fromkeys(still_names(), 3)
    for writer in writers:
        sizes |= writer.listed
    wait_for(lambda: settled(splitting), SETTLE_S)
    check_in_the_end(client, sizes)
    asyncio.run(bring_still_rows(splitting, account, deleted=True))
    check_that_it_can_be_deleted(client, [name for writer in writers for name in writer.listed])


def settled(cluster: Cluster) -> str:
    """What is still being moved."""
    known = [json.loads(statusz(cluster, service).body)["shards"] for service in SERVERS]
    reports = [report for status in known for report in status.values()]
    most = [max(report["mostShards"].values(), default=0) for report in reports]
    if any(report["splitsUnderWay"] for report in reports) or sorted(most)[1] < SPLITS:
        return f"splits are not done: {reports}"
    return ""


def check_in_the_end(client: Client, sizes: dict[str, int]) -> None:
    """Every listing is that of the model, often enough that each replica has been asked; so are the totals."""
    names = set(sizes)

    def listed() -> str:
        for _ in range(LISTINGS):
            answer = client.call("GET", CONTAINER, query=asked(ListingQuery()))
            found = page_of(answer) if answer.status == 200 else []
            if found != sorted(names):
                lost, wrong = sorted(names.difference(found)), sorted(set(found) - names)
                return f"{answer.status}, not listed {lost[:9]}, listed {wrong[:9]}"
        return ""

    wait_for(listed, SETTLE_S)
    queries = [
        ListingQuery(reverse=True),
        ListingQuery(limit=97),
        ListingQuery(limit=97, reverse=True),
        ListingQuery(limit=211, marker="d03", end_marker="d09/w"),
        ListingQuery(limit=211, marker="d09/w", end_marker="d03", reverse=True),
        ListingQuery(prefix="d07/"),
        ListingQuery(prefix="d0", delimiter="/"),
        ListingQuery(delimiter="/"),
        ListingQuery(limit=3, delimiter="/", reverse=True),
        ListingQuery(delimiter="-", limit=5),
        ListingQuery(path="d05"),
        ListingQuery(path=""),
    ]

    def page(query: ListingQuery) -> list[str]:
        """The page, asked for again while a busy machine takes too long to read a shard."""
        deadline = time.monotonic() + SETTLE_S
        while (answer := client.call("GET", CONTAINER, query=asked(query))).status == 503:
            assert time.monotonic() < deadline, f"{query}: {answer}"
            time.sleep(0.5)
        return page_of(answer)

    for query in queries:
        for _ in range(3):
            assert page(query) == naive(names, query), query

    def counted() -> str:
        totals = len(sizes), sum(sizes.values())
        for path in (CONTAINER, ""):
            kind = "Container" if path else "Account"
            for _ in range(6):
                headers = client.call("HEAD", path).headers
                found = tuple(int(headers[f"X-{kind}-{what}"]) for what in ("Object-Count", "Bytes-Used"))
                if found != totals:
                    return f"{kind}: {found}, not {totals}"
        return ""

    wait_for(counted, SETTLE_S)


def check_that_it_can_be_deleted(client: Client, objects: list[str]) -> None:
    """A container that was split is deleted once it is empty, not before, and is empty when it is made again."""
    with ThreadPoolExecutor(8) as pool:
        deleted = pool.map(lambda name: client.call("DELETE", f"{CONTAINER}/{name}").status, objects[1:])
    assert set(deleted) <= {204}
    assert client.call("DELETE", CONTAINER).status == 409
    assert client.call("DELETE", f"{CONTAINER}/{objects[0]}").status == 204

    answers: list[int] = []

    def refused() -> str:
        """Why it is still there. What was answered 503 may have been done: then it is missing."""
        answers.append(client.call("DELETE", CONTAINER).status)
        is_gone = answers[-1] == 204 or (answers[-1] == 404 and 503 in answers)
        return "" if is_gone else f"answered {answers}"

    wait_for(refused, SETTLE_S)
    assert client.call("GET", CONTAINER).status == 404
    assert client.call("PUT", CONTAINER).status == 201
    assert page_of(client.call("GET", CONTAINER, query=asked(ListingQuery()))) == []
    assert client.call("PUT", f"{CONTAINER}/{objects[0]}", body=b"again").status == 201
    wait_for(lambda: "" if client.call("GET", CONTAINER).text == f"{objects[0]}\n" else "not listed", SETTLE_S)
