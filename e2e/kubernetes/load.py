"""A client inside the cluster: writes and reads without pause, and remembers what it was promised. Runs in a pod.

python load.py stage COUNT BIG_BYTES    store COUNT small objects and one of BIG_BYTES, read all back, compare
python load.py run WRITERS READERS      until the file STOP appears; then read everything that was acknowledged

`run` writes what it has seen so far into STATS every second: nothing is retried but to find out whether a retry heals,
so a single failed request counts. Contents follow from names, so that nothing has to be kept to compare.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swiftclient.client import Connection

STATS = Path("/tmp/stats.json")
STOP = Path("/tmp/stop")
CONTAINER = "load"
SIZES = (0, 700, 10_000, 10_000, 10_000, 200_000, 3_000_000)
PAUSE_S = 0.05
"""Between a thread's requests: the cluster under test shares a computer with everything else."""
HEAL_S = (0.2, 0.5, 1, 2, 4, 8, 15, 15, 15, 15)
"""How long a failed write is given to heal: a node without power is sent requests for its pods for some 40 s more."""


def connect(retries: int = 0) -> Connection:
    """A client that has not logged in yet."""
    return Connection(os.environ["AUTH_URL"], os.environ["SWIFT_USER"], os.environ["SWIFT_KEY"], retries=retries)


def content(name: str) -> bytes:
    """What an object of this name holds; the size is the last part of the name."""
    return random.Random(name).randbytes(int(name.rpartition("-")[2]))


@dataclass
class Seen:
    """What the threads have seen."""

    writes: int = 0
    reads: int = 0
    failed_writes: Counter[str] = field(default_factory=Counter)
    failed_reads: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unhealed: list[str] = field(default_factory=list)
    slowest_read_s: float = 0.0
    slowest_write_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    names: list[str] = field(default_factory=list)
    verified: int = -1

    def report(self) -> dict[str, Any]:
        """Return the results as plain data."""
        with self.lock:
            plain = {name: getattr(self, name) for name in ("writes", "reads", "wrong", "unhealed", "verified")}
            slow = {"slowest_read_s": self.slowest_read_s, "slowest_write_s": self.slowest_write_s}
            failed = {"failed_writes": dict(self.failed_writes), "failed_reads": dict(self.failed_reads)}
            return {**plain, **slow, **failed, "acknowledged": len(self.names)}


def reason(error: Exception) -> str:
    """One line without addresses that differ from time to time."""
    status = getattr(error, "http_status", None)
    return f"{type(error).__name__} {status}" if status else f"{type(error).__name__}: {error}"[:160]


def write(seen: Seen, worker: int) -> None:
    """Store objects until told to stop."""
    swift = connect()
    chosen = random.Random(worker)
    number = 0
    while not STOP.exists():
        name = f"{worker}-{number}-{chosen.choice(SIZES)}"
        number += 1
        began = time.monotonic()
        try:
            swift.put_object(CONTAINER, name, content(name))
        except Exception as error:
            with seen.lock:
                seen.failed_writes[reason(error)] += 1
            swift = connect()
            if not heal(name):
                with seen.lock:
                    seen.unhealed.append(f"{name}: {reason(error)}")
                continue
        with seen.lock:
            seen.writes += 1
            seen.names.append(name)
            seen.slowest_write_s = max(seen.slowest_write_s, time.monotonic() - began)
        time.sleep(PAUSE_S)


def heal(name: str) -> bool:
    """Whether a write that failed succeeds when it is tried again."""
    for pause_s in HEAL_S:
        time.sleep(pause_s)
        try:
            connect().put_object(CONTAINER, name, content(name))
        except Exception as error:
            print("retry of", name, "failed:", reason(error), flush=True)
        else:
            return True
    return False


def read(seen: Seen, worker: int) -> None:
    """Fetch what was acknowledged, until told to stop."""
    swift = connect()
    chosen = random.Random(1000 + worker)
    while not STOP.exists():
        time.sleep(PAUSE_S)
        with seen.lock:
            name = chosen.choice(seen.names) if seen.names else None
        if name is None:
            continue
        began = time.monotonic()
        try:
            body = swift.get_object(CONTAINER, name)[1]
        except Exception as error:
            print("read of", name, "failed:", reason(error), flush=True)
            with seen.lock:
                seen.failed_reads[reason(error)] += 1
            swift = connect()
            continue
        with seen.lock:
            seen.reads += 1
            seen.slowest_read_s = max(seen.slowest_read_s, time.monotonic() - began)
            if body != content(name):
                seen.wrong.append(name)


def run(writers: int, readers: int) -> None:
    """Use the store until told to stop, then check every acknowledged object."""
    connect(retries=5).put_container(CONTAINER)
    seen = Seen()
    threads = [threading.Thread(target=write, args=(seen, n)) for n in range(writers)]
    threads += [threading.Thread(target=read, args=(seen, n)) for n in range(readers)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        tell(seen)
        time.sleep(1)
    verify(seen)
    tell(seen)
    while True:
        time.sleep(60)


def verify(seen: Seen) -> None:
    """Read everything back; what is wrong is in `wrong`."""
    swift = connect(retries=5)
    good = 0
    for name in seen.names:
        try:
            same = swift.get_object(CONTAINER, name)[1] == content(name)
        except Exception as error:
            seen.wrong.append(f"{name}: {reason(error)}")
            continue
        good += same
        if not same:
            seen.wrong.append(name)
    listed = {one["name"] for one in swift.get_container(CONTAINER, full_listing=True)[1]}
    seen.wrong += [f"{name} is not listed" for name in sorted(set(seen.names) - listed)]
    seen.verified = good


def tell(seen: Seen) -> None:
    """Write the statistics, never half."""
    new = STATS.with_suffix(".new")
    new.write_text(json.dumps(seen.report()))
    new.replace(STATS)


def stage(count: int, big_bytes: int) -> None:
    """Many small objects and a big one, there and back."""
    swift = connect(retries=5)
    swift.put_container("stage")
    names = [f"small-{number}-{number * 13 % 20_000}" for number in range(count)]
    for name in names:
        assert swift.put_object("stage", name, content(name)) == md5(content(name)), name
    for name in names:
        assert swift.get_object("stage", name)[1] == content(name), name
    piece = content(f"piece-{1 << 20}")
    digest = hashlib.md5(usedforsecurity=False)

    def pieces() -> Any:
        left = big_bytes
        while left:
            part = piece[:left]
            digest.update(part)
            left -= len(part)
            yield part

    etag = swift.put_object("stage", "big", pieces())
    assert etag == digest.hexdigest()
    back = hashlib.md5(usedforsecurity=False)
    for part in swift.get_object("stage", "big", resp_chunk_size=1 << 20)[1]:
        back.update(part)
    assert back.hexdigest() == etag
    listed = swift.get_container("stage", full_listing=True)[1]
    assert len(listed) == count + 1
    print(json.dumps({"small": count, "big_bytes": big_bytes}))


def md5(data: bytes) -> str:
    """Return the MD5 of a body, as in an ETag."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    {"run": run, "stage": stage}[sys.argv[1]](*map(int, sys.argv[2:]))
