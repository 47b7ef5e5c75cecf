"""Where the processor time of PUTs and GETs by the front goes in all processes: flame graphs, and a table by kind.

    .venv/bin/python -m bench.dataplane.flame DIRECTORY [--seconds 8] [--workers 1] [--graphs bench/dataplane]

Runs one standalone store with `proxy.front` and `proxy.front_put`, puts wrk with 20 clients on it, and samples
proxies, object and container servers with `perf record` (Linux' perf; needs the right to trace other processes). A
sample belongs to the first kind of work that one of its frames names, from the innermost one outwards; see `KINDS`.
What Python computes is one frame here: `bench.dataplane.profile` tells its functions apart. With `--graphs` an SVG per
operation is left there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

from bench.dataplane.front import store
from bench.dataplane.kinds import Kinds, print_shares
from bench.dataplane.proxy import KINDS as PROCESSES
from bench.dataplane.proxy import Store, children_of
from bench.micro import Measured, report

RATE_HZ = 499
STACK_BYTES = 16384
"""Bytes of each sample's stack, from which code compiled without frame pointers is unwound."""
_DISK = r"fdatasync|fsync|pwrite|ext4_|vfs_iter_write|statfs|fcntl_setlk|do_iter_write|__x64_sys_open"
_SOCKETS = r"sock_|_sendmsg|_recvmsg|tcp_|unix_stream|epoll|eventfd|skb_|x64_sys_(read|write)"
KINDS = Kinds(
    ("checksum (MD5, xxh3, SHA-256)", r"md5|xxh|twox_hash|libcrypto|SHA256|swiftlet_hash"),
    ("disk: system calls", _DISK),
    ("communication: system calls", _SOCKETS),
    ("waking threads: system calls", r"futex|schedule"),
    ("SQLite", r"sqlite"),
    ("communication: native transport", r"swiftlet_transport|swiftlet_wire|swiftlet_node"),
    ("native store", r"swiftlet_store"),
    ("native front", r"swiftlet_front"),
    ("Python", r"^Python|cpython-|libpython|^uvloop"),
)
"""What a stack is counted as, by a pattern of one of its frames; the innermost frame that matches any decides."""
_COLOURS = ("#e8684a", "#d9a441", "#5b8ff9", "#9270ca", "#61ddaa", "#78d3f8", "#f6bd16", "#ff9d4d", "#7262fd", "#ccc")
_WIDTH, _ROW, _SMALLEST = 1200, 16, 0.0015


def _frame(symbol: str, library: str) -> str:
    """A frame's name, without addresses, hashes and the machine's paths."""
    name = library.rstrip(")").rpartition("/")[2]
    if "libpython" in name:
        return "Python"
    if "cpython-" in name:
        return name.partition(".")[0] + " (cpython-module)" if not name.startswith("loop.") else "uvloop"
    symbol = re.sub(r"\+0x[0-9a-f]+$|::h[0-9a-f]{16}$", "", symbol)
    if symbol == "[unknown]":
        return f"[{name}]"
    return f"{symbol} (libcrypto)" if "libcrypto" in name else symbol


def stacks(script: str, kinds: dict[int, str]) -> Iterator[tuple[str, ...]]:
    """Frames, outermost first: kind of process, thread, functions; from `perf script -F comm,tid,pid,ip,sym,dso`."""
    for block in script.split("\n\n"):
        head, *lines = block.strip("\n").split("\n")
        found = re.match(r"\s*(.+?)\s+(\d+)/(\d+)", head)
        if found is None or not lines:
            continue
        frames: list[str] = [kinds.get(int(found[2]), "?"), f"thread {found[1]}"]
        for line in reversed(lines):
            parts = re.match(r"\s*[0-9a-f]+ (.*) \((.*)\)$", line)
            if parts is None:
                continue
            frame = _frame(parts[1], parts[2])
            if frame != frames[-1]:
                frames.append(frame)
        yield tuple(frames)


def picture(counts: Counter[tuple[str, ...]], title: str) -> str:
    """A flame graph: one row per depth, the outermost frames at the bottom; the kind decides a frame's colour."""
    total = sum(counts.values())
    order = [*KINDS.names, "other"]
    boxes: list[tuple[int, float, float, str, str]] = []

    def lay(group: list[tuple[tuple[str, ...], int]], depth: int, left: float) -> None:
        by_name: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        for stack, count in group:
            if len(stack) > depth:
                by_name.setdefault(stack[depth], []).append((stack, count))
        for name, part in sorted(by_name.items()):
            share = sum(count for _, count in part) / total
            if share >= _SMALLEST:
                boxes.append((depth, left, share, name, KINDS.of(part[0][0][: depth + 1])))
                lay(part, depth + 1, left)
            left += share

    lay(list(counts.items()), 0, 0.0)
    height = (max(box[0] for box in boxes) + 1) * _ROW + 60
    sizes = f'width="{_WIDTH}" height="{height}" font-family="monospace" font-size="11"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {sizes}>',
        f'<text x="4" y="14" font-size="13">{escape(title)}</text>',
    ]
    for number, kind in enumerate(order):
        x, y = 4 + number % 5 * 240, 20 + number // 5 * 14
        out.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{_COLOURS[number]}"/>')
        out.append(f'<text x="{x + 14}" y="{y + 9}">{escape(kind[:34])}</text>')
    for depth, start, share, name, kind in boxes:
        at, top, width = start * _WIDTH, height - (depth + 1) * _ROW, share * _WIDTH
        colour = "#dddddd" if depth < 2 else _COLOURS[order.index(kind)]
        out.append(
            f'<g><title>{escape(name)} {share:.1%}</title><rect x="{at:.1f}" y="{top}" width="{width:.1f}" '
            f'height="{_ROW - 1}" fill="{colour}"/>'
        )
        room = int(width / 6.7)
        if room > 2:
            out.append(f'<text x="{at + 2:.1f}" y="{top + 11}">{escape(name[:room])}</text>')
        out.append("</g>")
    return "\n".join([*out, "</svg>", ""])


def sampled(one: Store, script: str, seconds: int, raw: Path) -> tuple[Counter[tuple[str, ...]], dict[str, float]]:
    """Stacks while a script runs, and what each kind of process used per request, in ms, perf's work included."""
    kinds: dict[int, str] = {}
    for name, pid in one.cluster.pids.items():
        if (kind := name.split("-")[0]) in PROCESSES:
            kinds |= dict.fromkeys((pid, *children_of(pid)), kind)
    command = ["perf", "record", "--quiet", "--freq", str(RATE_HZ), "--call-graph", f"dwarf,{STACK_BYTES}"]
    command += ["--pid", ",".join(map(str, kinds)), "--output", str(raw), "--", "sleep", str(seconds)]
    recording = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    used = one.measure(script, seconds + 2).cpu_ms
    if recording.wait():
        raise SystemExit("perf failed; see above")
    shown = ["perf", "script", "--no-inline", "-F", "comm,pid,tid,ip,sym,dso", "--input", str(raw)]
    text = subprocess.run(shown, check=True, capture_output=True, text=True, errors="replace").stdout
    raw.unlink()
    return Counter(stacks(text, kinds)), used


def shares(counts: Counter[tuple[str, ...]], processes: Iterable[str]) -> dict[str, float]:
    """The share of each kind of work in the samples of some processes."""
    found: Counter[str] = Counter()
    wanted = frozenset(processes)
    for stack, count in counts.items():
        if stack[0] in wanted:
            found[KINDS.of(stack)] += count
    return {kind: count / max(1, sum(found.values())) for kind, count in found.items()}


def reported(found: Mapping[str, Mapping[str, float]]) -> Iterator[Measured]:
    """Yield the shares of each kind of work as the page has them, by operation; most of all operations comes first."""
    kinds = {kind for by_kind in found.values() for kind in by_kind}
    for kind in sorted(kinds, key=lambda kind: (-sum(by_kind.get(kind, 0) for by_kind in found.values()), kind)):
        for operation, by_kind in found.items():
            yield Measured(f"{operation}, {kind}", "%", (100 * by_kind.get(kind, 0),))


def main() -> None:
    """Measure the workload, print a summary and write the flame graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the store's data goes; about 2 GB")
    parser.add_argument("--seconds", type=int, default=8, help="of each operation (default 8)")
    parser.add_argument("--workers", type=int, default=1, help="processes of the proxy (default 1)")
    parser.add_argument("--graphs", type=Path, help="directory for front-put.svg and front-get.svg")
    arguments = parser.parse_args()
    graphs = arguments.graphs or arguments.directory
    found = {}
    with store(arguments.directory, "front", arguments.workers) as front:
        front.measure("put.lua", 3)
        for name in ("put", "get"):
            counts, used = sampled(front, f"{name}.lua", arguments.seconds, arguments.directory / f"{name}.perf")
            title = f"{name.upper()} by the front, 10 KiB, 20 clients: processor time of all servers"
            (graphs / f"front-{name}.svg").write_text(picture(counts, title))
            cpu = ", ".join(f"{kind} {ms:.2f} ms" for kind, ms in used.items())
            print(f"\n{name.upper()}: {sum(counts.values())} samples; {cpu} each while sampled\n")
            found[f"{name.upper()} 10 KiB"] = whole = shares(counts, PROCESSES)
            print_shares({"all": whole} | {kind: shares(counts, (kind,)) for kind in PROCESSES})
    report("dataplane-share", list(reported(found)))


if __name__ == "__main__":
    main()
