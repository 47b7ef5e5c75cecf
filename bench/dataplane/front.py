"""Small objects through the proxy, with reads in Python and in the native front: rates and processor time.

    .venv/bin/python -m bench.dataplane.front DIRECTORY [--rounds 3] [--seconds 8] [--workers 2]

Two standalone stores on the native transport, one with `proxy.front`, measured in turns with wrk; see
`bench.dataplane.proxy` for what counts.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.dataplane.proxy import Store, in_turns, row
from e2e.standalone.cluster import start_cluster


@contextmanager
def store(directory: Path, front: bool, workers: int) -> Iterator[Store]:
    """A store that runs."""
    name = "front" if front else "python"
    flag = str(front).lower()
    settings = {"SWIFTLET_PROXY__FRONT": flag, "SWIFTLET_PROXY__FRONT_PUT": flag}
    cluster = start_cluster(directory / name, "--workers", str(workers), settings=settings)
    try:
        yield Store(name, cluster)
    finally:
        cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the stores' data goes; about 4 GB")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    parser.add_argument("--seconds", type=int, default=8, help="length of each (default 8)")
    parser.add_argument("--workers", type=int, default=2, help="processes of each proxy (default 2)")
    arguments = parser.parse_args()
    with (
        store(arguments.directory, False, arguments.workers) as python,
        store(arguments.directory, True, arguments.workers) as front,
    ):
        found = in_turns((python, front), arguments.rounds, arguments.seconds)
    print("| operation | answered by | requests/s | p50 ms | p99 ms | CPU ms each: proxy | object | container | all |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (operation, name), rounds in sorted(found.items(), reverse=True):
        print(row(operation, name, rounds))
    for (operation, name), rounds in sorted(found.items(), reverse=True):
        rates = ", ".join(f"{one.figures.per_second:,.0f}" for one in rounds)
        proxies = ", ".join(f"{one.cpu_ms['proxy']:.3f}" for one in rounds)
        print(f"{operation} {name}: requests/s {rates}; proxy's CPU ms {proxies}")
    pairs = zip(found["GET 10 KiB", "python"], found["GET 10 KiB", "front"], strict=True)
    ratios = [sum(one.cpu_ms.values()) / sum(other.cpu_ms.values()) for one, other in pairs]
    print(
        f"\nGET: Python takes {statistics.median(ratios):.1f} times the front's processor time, all processes together"
    )


if __name__ == "__main__":
    main()
