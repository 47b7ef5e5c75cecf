"""All measurements of one sitting: stores in turns, degraded modes, and the page that tells of both.

make bench                # everything, some 30 minutes on a quiet machine, as root: writes bench/RESULTS.md
make bench-quick          # a small set in under 5 minutes, and a page in .cache/bench
.venv/bin/python -m bench.sitting --page-of .cache/bench/results.json --page bench/RESULTS.md
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.degrade import peer
from bench.degrade.machine import is_own_network
from bench.degrade.modes import MODES
from bench.degrade.run import picture_name
from bench.micro import part
from bench.peers import turns
from bench.peers.systems import SYSTEMS
from bench.results import render
from swiftlet.bench.environment import facts

MODE_S = 42.0
"""Seconds that are kept for each degraded mode of each store when a sitting has a limit."""
LEAST_MODES_S = 100.0
STOP_S = 30.0
"""Seconds in which degraded modes have to stop their stores when their time is over."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="of each store (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each workload (default 1)")
    parser.add_argument("--large", default="100 MiB", help="size of the object in one stream (default 100 MiB)")
    parser.add_argument("--quick", action="store_true", help="few workloads, and no fsync in SeaweedFS")
    parser.add_argument("--stores", nargs="*", metavar="STORE", help=", ".join(one.name for one in SYSTEMS))
    parser.add_argument(
        "--modes", nargs="*", metavar="MODE", help="degraded modes (default: all; with --quick: process)"
    )
    parser.add_argument("--phase-seconds", type=float, default=5.0, help="of each phase of a degraded mode (default 5)")
    parser.add_argument(
        "--most-seconds",
        type=float,
        default=math.inf,
        help="no turn begins that would last for longer, and degraded modes are ended (default: no limit)",
    )
    parser.add_argument("--directory", type=Path, default=Path(".cache/bench"), help="on a real disk")
    parser.add_argument("--page", type=Path, help="where the page goes (default: page.md in the directory)")
    parser.add_argument("--page-of", type=Path, metavar="JSON", help="only write the page of what was measured before")
    arguments = parser.parse_args()
    page = arguments.page or arguments.directory / "page.md"
    if arguments.page_of is not None:
        document = json.loads(arguments.page_of.read_text("utf-8"))
    else:
        document = _measured(arguments)
        (arguments.directory / "results.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    page.write_text(render(document, part()), "utf-8")
    print(f"wrote {page}")
    raise SystemExit(int(bool(document["failed"])))


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    arguments.directory.mkdir(parents=True, exist_ok=True)
    if is_own_network():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    wanted = [one for one in SYSTEMS if arguments.stores is None or one.name in arguments.stores]
    if arguments.quick and arguments.stores is None:
        wanted = [one for one in wanted if not one.name.endswith("fsync")]
    missing = [f"{one.name}: {why}" for one in wanted if (why := one.missing())]
    systems = [one for one in wanted if not one.missing()]
    started = time.monotonic()
    environment, began, before = facts(), datetime.now(UTC), _load_average()
    extent = turns.Extent(arguments.seconds, arguments.large, arguments.quick)
    whole = turns.Limit(arguments.most_seconds)
    limit = turns.Limit(arguments.most_seconds - kept_s(_modes(arguments)))
    found = turns.measure(systems, arguments.directory.absolute(), arguments.turns, extent, _say, limit)
    degraded, failed = _degraded(arguments, whole.left)
    modes = degraded.get("modes", [])
    return {
        "command": "make bench-quick" if arguments.quick else "make bench",
        "arguments": sys.argv[1:],
        "began": began.isoformat(timespec="seconds"),
        "environment": environment,
        "load_average": {"before": before, "after": _load_average()},
        "turns": arguments.turns,
        "seconds": arguments.seconds,
        "compared": turns.COMPARED,
        "took_s": round(time.monotonic() - started),
        "systems": {
            one.name: {
                "version": one.version(),
                "settings": one.settings,
                "durability": one.durability,
                "syncs": found.syncs.get(one.name),
            }
            for one in systems
        },
        "rows": found.rows,
        "degraded": [{**one, "picture": f"pictures/{picture_name(one['mode'])}"} for one in modes],
        "without": degraded.get("without", {}),
        "missing": [*missing, *limit.reached, *(f"{name}: {why}" for name, why in degraded.get("skipped", {}).items())],
        "failed": [*found.failed, *failed],
    }


def _modes(arguments: argparse.Namespace) -> list[str] | None:
    """Return the degraded modes that are wanted, None for all."""
    if arguments.modes is not None:
        return list(arguments.modes)
    return ["process"] if arguments.quick else None


def kept_s(modes: list[str] | None) -> float:
    """Return the seconds that are kept for degraded modes, None for all of them."""
    chosen = list(MODES) if modes is None else modes
    stores = sum(1 + (name in peer.MODES) for name in chosen)
    return max(LEAST_MODES_S, stores * MODE_S) if chosen else 0.0


def _degraded(arguments: argparse.Namespace, seconds: float) -> tuple[dict[str, Any], list[str]]:
    """Run the degraded modes in a process of their own, for so long at most; their document, and what failed."""
    chosen = _modes(arguments)
    if chosen == []:
        return {}, []
    directory = arguments.directory.absolute() / "degrade"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    file = directory / "modes.json"
    command = [sys.executable, "-m", "bench.degrade.run", "--directory", str(directory), "--json", str(file), "--peer"]
    command += ["--html", str(arguments.directory / "degrade.html"), "--seconds", str(arguments.phase_seconds)]
    pictures = (arguments.page or arguments.directory / "page.md").parent / "pictures"
    command += ["--objects", "200", "--pictures", str(pictures), *(["--modes", *chosen] if chosen is not None else [])]
    failed = [f"degraded modes: {why}"] if (why := ended(command, seconds)) else []
    document: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return document, failed


def ended(command: list[str], seconds: float) -> str:
    """Run a command and what it starts for so many seconds at most; why it did not end well, empty when it did."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(None if math.isinf(seconds) else max(0.0, seconds))
    except subprocess.TimeoutExpired:
        # It stops its stores when it is interrupted; what doesn't end by then is ended.
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        return "there was no time left for them"
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    else:
        return f"exit code {code}" if code else ""
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _load_average() -> float:
    return round(os.getloadavg()[0], 2)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
