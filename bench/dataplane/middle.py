"""Objects of middle sizes through the proxy: rates and processor time.

    .venv/bin/python -m bench.dataplane.middle DIRECTORY [--rounds 3] [--seconds 5] [--kib 100 1024] [--clients 20 8]

One standalone store, PUTs and then GETs of each size with as many clients as are named beside it. See
`bench.dataplane.proxy` for what counts. To compare two versions run it from a working tree of each, in turns.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bench.dataplane.proxy import Round, Store, reported, row
from bench.micro import report
from e2e.standalone.cluster import start_cluster


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the store's data goes; some GB")
    parser.add_argument("--rounds", type=int, default=3, help="the medians count (default 3)")
    parser.add_argument("--seconds", type=int, default=5, help="length of each operation (default 5)")
    parser.add_argument("--workers", type=int, default=2, help="processes of the proxy (default 2)")
    parser.add_argument("--kib", type=int, nargs="+", default=[100, 1024], help="sizes (default 100 and 1024)")
    parser.add_argument("--clients", type=int, nargs="+", default=[20, 8], help="clients of each size (default 20, 8)")
    parser.add_argument("--name", default="store", help="in the table's second column")
    arguments = parser.parse_args()
    cluster = start_cluster(arguments.directory / "store", "--workers", str(arguments.workers))
    found: dict[str, list[Round]] = {}
    try:
        stores = [
            (kib, Store(arguments.name, cluster, clients, kib * 1024))
            for kib, clients in zip(arguments.kib, arguments.clients, strict=True)
        ]
        print(f"load (1 minute) {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors\n")
        for _ in range(arguments.rounds):
            for kib, store in stores:
                for operation in ("put", "get"):
                    what = f"{operation.upper()} {kib} KiB, {store.clients} clients"
                    found.setdefault(what, []).append(store.measure(f"{operation}.lua", arguments.seconds))
    finally:
        cluster.stop()
    print("| operation | store | requests/s | p50 ms | p99 ms | CPU ms each: proxy | object | container | all |")
    print("|---|---|---|---|---|---|---|---|---|")
    for what, rounds in found.items():
        print(row(what, arguments.name, rounds))
    for what, rounds in found.items():
        print(f"{what}: {', '.join(f'{one.figures.per_second:,.0f}/s' for one in rounds)}")
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    report("dataplane-middle", [one for what, each in found.items() for one in reported(what, arguments.name, each)])


if __name__ == "__main__":
    main()
