"""OpenStack Swift with several settings in turns, to measure it beside ours with its best ones for a machine.

    .venv/bin/python -m bench.peers.tuning --turns 3 --seconds 2

`bench/peers/prepare.sh` installs OpenStack Swift. Each turn starts a new cluster. What is told of each setting is its
operations per second; the sittings use the one that is best by the geometric mean of all workloads (`Tuning`).
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.micro import Measured, report
from bench.peers.openstack import TUNING, Tuning
from bench.peers.systems import openstack
from bench.peers.turns import FIRST_PUTS, fixed
from swiftlet.bench.errors import BenchError
from swiftlet.bench.figures import OPERATIONS_PER_S, keys, values
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario

SUBJECT = "openstack-settings"
TUNINGS = (
    TUNING,
    Tuning(proxy_workers=1),
    Tuning(proxy_workers=4),
    Tuning(storage_workers=2),
    Tuning(chunk_bytes=1 << 20),
)


def named(tuning: Tuning) -> str:
    """Return what is different about a setting, in words."""
    workers = f"proxy {tuning.proxy_workers}, each server {tuning.storage_workers}"
    return f"workers: {workers}; pieces of {tuning.chunk_bytes >> 10} KiB"


def workloads(seconds: float) -> Iterator[tuple[str, Scenario]]:
    """Return what each setting is measured by."""
    timed = {"duration_s": seconds}
    yield fixed("PUT 10 KiB, 20 clients", "10 KiB", "create", [20], **timed)
    yield fixed("GET 10 KiB, 20 clients", "10 KiB", "read", [20], objects=200, **timed)
    yield fixed("PUT 1 MiB, 8 clients", "1 MiB", "create", [8], **timed)
    yield fixed("GET 1 MiB, 8 clients", "1 MiB", "read", [8], objects=24, **timed)


def measure(
    directory: Path, tunings: Sequence[Tuning], turns: int, seconds: float
) -> dict[Tuning, dict[str, list[float]]]:
    """Return operations per second by setting and workload, one for each turn."""
    found: dict[Tuning, dict[str, list[float]]] = {tuning: {} for tuning in tunings}
    for number in range(1, turns + 1):
        for tuning in tunings:
            place = directory / "store"
            how = "measured"
            try:
                with openstack(place, tuning) as running:
                    _, first = fixed("first", "10 KiB", "create", [20], count=FIRST_PUTS)
                    run(first, running.target, Options(f"bench-{secrets.token_hex(4)}"))
                    for title, scenario in workloads(seconds):
                        result = run(scenario, running.target, Options(f"bench-{secrets.token_hex(4)}"))
                        (rate,) = (values(result, key, OPERATIONS_PER_S)[0] for key in keys(result))
                        found[tuning].setdefault(title, []).append(rate)
            except BenchError as error:
                # With more workers than memcached has connections it answers 401 for a while.
                how = f"failed: {error}"
            finally:
                shutil.rmtree(place, ignore_errors=True)
            print(f"turn {number} of {turns}: {named(tuning)}: {how}", flush=True)
    return found


def best(found: dict[Tuning, dict[str, list[float]]]) -> Tuning:
    """Return the setting with the highest geometric mean of the medians of all workloads."""
    return max(
        found, key=lambda one: statistics.geometric_mean(statistics.median(each) for each in found[one].values())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3, help="of each setting, one after the other")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each workload")
    parser.add_argument("--directory", type=Path, default=Path(".cache/bench-peers/data"), help="on a real disk")
    options = parser.parse_args()
    found = measure(options.directory.absolute(), TUNINGS, options.turns, options.seconds)
    print(f"best: {named(best(found))}; the sittings use {named(TUNING)}")
    report(
        SUBJECT,
        [
            Measured(f"{title}; {named(tuning)}", "1/s", tuple(each))
            for tuning, by_title in found.items()
            for title, each in by_title.items()
        ],
    )


if __name__ == "__main__":
    main()
