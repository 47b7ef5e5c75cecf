"""Small objects through the proxy, answered by Python and by the native front: rates and processor time.

    .venv/bin/python -m bench.dataplane.front DIRECTORY [--rounds 3] [--seconds 8] [--workers 2] [--clients 20]
        [--quota] [--only NAME] [--realtime]

Three standalone stores on the native transport, measured in turns with wrk: without a front (`python`), with one whose
listing rows Python delivers (`front, rows by Python`: without `container.native_updates`), and with one that delivers
them itself (`front`). With `--quota` a store with a precise limit of the account is measured instead of the second one
(`front, quota`), and one with it and without a front (`python, quota`). `--only` measures one of them.

Beside much other work latencies are those of the scheduler. `--realtime` (as root) lets stores and wrk run before
everything else that the machine does, which others notice: keep it short. Of threads that compute at the same time each
then runs for up to 100 ms, which p99 shows where clients keep both processors busy. See `bench.dataplane.proxy` for
what counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import yaml

from bench.dataplane.proxy import CLIENTS, OPERATIONS, Store, in_turns, reported, row
from bench.micro import report
from e2e.standalone.cluster import start_cluster

STORES = {
    "python": {"SWIFTLET_PROXY__FRONT": "false", "SWIFTLET_PROXY__FRONT_PUT": "false"},
    "front, rows by Python": {"SWIFTLET_CONTAINER__NATIVE_UPDATES": "false"},
    "front": {},
}
"""Settings of the stores, by what answers."""
WITH_QUOTA = {
    "python, quota": STORES["python"],
    "python": STORES["python"],
    "front, quota": {},
    "front": {},
}
"""The stores of a comparison of quotas."""
QUOTAS = {
    "precise": True,
    "levels": {"default": {"account_object_count": 1_000_000_000, "account_usage_bytes": 1 << 50}},
}


@contextmanager
def store(directory: Path, name: str, workers: int, clients: int = CLIENTS) -> Iterator[Store]:
    """A store that runs."""
    settings = {"SWIFTLET_PROXY__FRONT": "true", "SWIFTLET_PROXY__FRONT_PUT": "true"} | (STORES | WITH_QUOTA)[name]
    if name.endswith("quota"):
        file = directory.absolute() / "quotas.yaml"
        file.write_text(yaml.safe_dump(QUOTAS))
        settings["SWIFTLET_QUOTA__FILE"] = str(file)
    cluster = start_cluster(directory / name.replace(" ", "-"), "--workers", str(workers), settings=settings)
    try:
        yield Store(name, cluster, clients)
    finally:
        cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the stores' data goes; about 6 GB")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    parser.add_argument("--seconds", type=int, default=8, help="length of each (default 8)")
    parser.add_argument("--workers", type=int, default=2, help="processes of each proxy (default 2)")
    parser.add_argument("--clients", type=int, default=CLIENTS, help=f"clients at the same time (default {CLIENTS})")
    parser.add_argument("--quota", action="store_true", help="compare stores with and without a limit of the account")
    parser.add_argument("--only", choices=sorted(STORES | WITH_QUOTA), help="the only store to measure")
    parser.add_argument("--realtime", action="store_true", help="before everything else that the machine does")
    arguments = parser.parse_args()
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    names = (WITH_QUOTA if arguments.quota else STORES) if arguments.only is None else [arguments.only]
    with ExitStack() as stack:
        begin = partial(store, arguments.directory, workers=arguments.workers, clients=arguments.clients)
        stores = [stack.enter_context(begin(name)) for name in names]
        found = in_turns(stores, arguments.rounds, arguments.seconds, OPERATIONS | {"DELETE": "delete.lua"})
    print("| operation | answered by | requests/s | p50 ms | p99 ms | CPU ms each: proxy | object | container | all |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (operation, name), rounds in sorted(found.items(), reverse=True):
        print(row(operation, name, rounds))
    for (operation, name), rounds in sorted(found.items(), reverse=True):
        rates = ", ".join(f"{one.figures.per_second:,.0f}" for one in rounds)
        proxies = ", ".join(f"{one.cpu_ms['proxy']:.3f}" for one in rounds)
        tails = ", ".join(f"{one.figures.p50_ms:.2f}/{one.figures.p99_ms:.1f}" for one in rounds)
        print(f"{operation} {name}: requests/s {rates}; p50/p99 ms {tails}; proxy's CPU ms {proxies}")
    told = [one for (what, name), each in found.items() for one in reported(what, name, each)]
    if arguments.realtime and arguments.only == "front":
        report("dataplane-realtime", told)
    if ("GET 10 KiB", "python") not in found:
        return
    if not arguments.quota:
        report("dataplane-front", told)
    pairs = zip(found["GET 10 KiB", "python"], found["GET 10 KiB", "front"], strict=True)
    ratios = [sum(one.cpu_ms.values()) / sum(other.cpu_ms.values()) for one, other in pairs]
    print(
        f"\nGET: Python takes {statistics.median(ratios):.1f} times the front's processor time, all processes together"
    )


if __name__ == "__main__":
    main()
