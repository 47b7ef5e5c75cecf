"""Where the processor time of a small PUT and GET goes in the proxy: flame graphs, and a table by kind of work.

    .venv/bin/python -m bench.dataplane.profile DIRECTORY --py-spy PATH [--seconds 15] [--graphs bench/dataplane]

Runs one standalone store over the native transport, puts wrk with 20 clients on it, and samples its proxy workers with
py-spy (https://github.com/benfred/py-spy; Python and native frames, threads that wait are left out). Needs the right to
trace other processes. A sample belongs to the first kind of work that its stack names, from the innermost frame
outwards; see `KINDS`. With `--graphs` an SVG per operation is left there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bench.dataplane.kinds import Kinds, print_shares
from bench.dataplane.proxy import Store, store

RATE_HZ = 200
KINDS = Kinds(
    ("system calls of sockets", r"^(write|writev|read|sendmsg|recvmsg|epoll_\w+|accept4?) \(libc"),
    ("native transport", r"reactor|swiftlet_transport|swiftlet_wire|swiftlet_native"),
    ("checksum", r"md5|xxh3|Hasher|hasher|xxhash"),
    ("logs and metrics", r"structlog|web/logs\.py|web/metrics\.py|web/access\.py|prometheus_client"),
    ("container rows", r"http_listing|listing_wire|row_queues|row_delivery|acknowledgements\.py"),
    ("native calls from Python", r"transport/native_|native_values"),
    ("placement", r"swiftlet/placement/|swiftlet/ring/"),
    ("API", r"swiftlet/api/|swiftlet/auth/|swiftlet/quota/|swiftlet/names\.py|swiftlet/expiry/"),
    ("aiohttp", r"aiohttp|multidict|yarl|web/"),
    ("event loop", r"asyncio|uvloop|selectors"),
)
"""What a stack is counted as, by a pattern of one of its frames; the innermost frame that matches any decides."""

_WAITING = re.compile(r"PyThread_acquire_lock_timed|_queue_SimpleQueue_get")
"""A thread without work."""


def shares(lines: Iterable[str]) -> dict[str, float]:
    """The share of each kind in collapsed stacks (`frame;frame;... count` a line)."""
    counts: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        if stack and not _WAITING.search(stack):
            counts[KINDS.of(stack.split(";"))] += int(count)
    total = max(1, sum(counts.values()))
    return {kind: count / total for kind, count in counts.most_common()}


def _workers(one: Store) -> list[int]:
    """The processes that serve: the proxy's workers."""
    parent = one.cluster.pids["proxy"]
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children] or [parent]


def _record(spy: str, pid: int, form: str, seconds: int, output: Path) -> subprocess.Popen[bytes]:
    command = [spy, "record", "--pid", str(pid), "--native", "--rate", str(RATE_HZ)]
    command += ["--duration", str(seconds), "--format", form, "--output", str(output)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def profile(one: Store, script: str, spy: str, seconds: int, graph: Path, raw: Path) -> tuple[dict[str, float], float]:
    """Shares of each kind of work, and the proxy's processor time per request in ms while it was looked at."""
    workers = _workers(one)
    running = [_record(spy, workers[0], "raw", seconds, raw)]
    if len(workers) > 1:
        running.append(_record(spy, workers[1], "flamegraph", seconds, graph))
    found = one.measure(script, seconds + 2)
    if any(process.wait() for process in running):
        raise SystemExit("py-spy failed; see above")
    if graph.exists():
        # Its title is the command, with this machine's paths.
        graph.write_text(
            re.sub(r">[^<>]*py-spy record[^<>]*<", f">one proxy worker, {script}, by py-spy<", graph.read_text())
        )
    return shares(raw.read_text().splitlines()), found.cpu_ms["proxy"]


def main() -> None:
    """Measure the workload and print its profile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the store's data goes; about 2 GB")
    parser.add_argument("--py-spy", default="py-spy", help="the program")
    parser.add_argument("--seconds", type=int, default=15, help="of each operation (default 15)")
    parser.add_argument("--graphs", type=Path, help="directory for profile-put.svg and profile-get.svg")
    arguments = parser.parse_args()
    graphs = arguments.graphs or arguments.directory
    table: dict[str, dict[str, float]] = {}
    with store(arguments.directory) as native:
        native.measure("put.lua", 3)
        for name in ("put", "get"):
            raw = arguments.directory / f"{name}.stacks"
            graph = graphs / f"profile-{name}.svg"
            table[name], spent = profile(native, f"{name}.lua", arguments.py_spy, arguments.seconds, graph, raw)
            print(f"{name}: {spent:.2f} ms of the proxy's processor time each while sampled")
    print()
    print_shares({name.upper(): found for name, found in table.items()})


if __name__ == "__main__":
    main()
