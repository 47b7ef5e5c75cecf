"""OpenStack Swift's daemons beside ours, in one run on one machine: rounds of replication, and small objects.

    make bench-peers                       # or, in a network namespace of its own:
    unshare --net .venv/bin/python -m bench.peers.run --objects 1000 10000 --directory .cache/bench-peers/data

`bench/peers/prepare.sh` installs OpenStack Swift. Prints markdown tables; everything is stopped and removed at the end.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from bench.micro import report
from bench.peers import front, replication
from bench.peers.wire import Wire


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, nargs="*", default=[1000, 10_000], help="sizes for replication")
    parser.add_argument("--working", type=int, default=replication.NODES - 1, help="nodes whose passes are measured")
    parser.add_argument(
        "--unreachable", type=int, default=1, help="of them with a node unreachable, up to 1,000 objects"
    )
    parser.add_argument("--running", type=int, default=3, help="passes of running replicators; 0 for none")
    parser.add_argument("--rounds", type=int, default=2, help="of each proxy, in turns; 0 for none")
    parser.add_argument("--seconds", type=int, default=10, help="length of each operation")
    parser.add_argument("--directory", type=Path, default=Path(".cache/bench-peers/data"), help="on a real disk")
    arguments = parser.parse_args()
    wire = Wire(replication.NODES)
    found: list[replication.Row] = []
    for objects in arguments.objects:
        _say(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n\n{replication.HEAD}")
        unreachable = arguments.unreachable if objects <= 1000 else 0
        plan = replication.Plan(objects, arguments.working, unreachable, arguments.running)
        for row in replication.measure(plan, wire):
            found.append(row)
            _say(str(row))
    if found:
        _say("\n" + "\n".join(replication.ratios(found)))
        report("peers", list(replication.reported(found)))
    if arguments.rounds:
        _say(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
        shutil.rmtree(arguments.directory, ignore_errors=True)
        try:
            small = front.measure(arguments.directory.absolute(), arguments.rounds, arguments.seconds)
        finally:
            shutil.rmtree(arguments.directory, ignore_errors=True)
        for line in front.rows(small):
            _say(line)
        report("peers-front", list(front.reported(small)))


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
