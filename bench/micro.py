"""Measurements of one part at a time, all reported alike: a document for each subject, and their part of one page.

.venv/bin/python -m bench.micro run [SUBJECT ...] [--rounds 3]   # benchmarks of crates: documents, and the page
.venv/bin/python -m bench.micro page                             # the page of the documents that there are

bench/encryption/run.sh DIRECTORY | .venv/bin/python -m bench.micro read encryption
.venv/bin/python -m bench.micro taken slo --on 2026-11-22 --machine '2 processors' --load 3 < LINES

A benchmark in Python calls `report` at its end. One of a crate prints lines as `native/benches/measured.rs` does, and
this command reads them. What was measured before benchmarks reported so is `taken` from where it was written down, and
says so. Documents are in `bench/measured`, and the page is `bench/RESULTS.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.results import laid_out
from swiftlet.bench.environment import facts

HERE = Path(__file__).parent
DOCUMENTS = HERE / "measured"
PAGE = HERE / "RESULTS.md"
TITLE = "## One part at a time"
_LINE = re.compile(r"^measured: (?P<what>[^|]+) \| (?P<unit>[^|]+) \| (?P<values>[-+.0-9e ]+)$", re.MULTILINE)
_INTRODUCTION = (
    "What a benchmark of one part measured, each in its own sitting: the median of its rounds, and the least and the "
    "most of them where there were several. Compare within a table alone."
)


@dataclass(frozen=True)
class Subject:
    """What is measured: the command that repeats it, and where there is more about it."""

    name: str
    title: str
    command: str
    more: str = ""
    """A path from the folder of this file."""
    crates: tuple[str, ...] = ()
    """Crates whose benchmarks print it."""
    came_out: str = ""
    """Sentences that say what follows from it, and which bars it meets."""


@dataclass(frozen=True)
class Measured:
    """A thing that was measured, and the value of each round."""

    what: str
    unit: str
    values: tuple[float, ...]


_DESIGN = "../docs/design/"
_PAGE = "/RESULTS.md"
SUBJECTS = (
    Subject("hash", "Digests", "make bench-micro MICRO='hash'", crates=("hash",)),
    Subject(
        "erasure",
        "Coding cells, and fragments of objects",
        "make bench-micro MICRO='erasure'",
        _DESIGN + "2026-11-26-erasure-coding.md#measured",
        ("erasure", "fragments"),
    ),
    Subject(
        "transport",
        "The transport beside plain sockets",
        "make bench-micro MICRO='transport'",
        _DESIGN + "2026-11-21-transport.md#measured",
        ("transport",),
    ),
    Subject(
        "load",
        "The load generator itself",
        "make bench-generator",
        _DESIGN + "2026-11-27-load-generator.md#measured",
        ("load",),
    ),
    Subject("baseline", "The front path of a store", "make bench-baseline", _DESIGN + "2026-11-27-load-generator.md"),
    Subject(
        "encryption",
        "Encryption between services",
        "bench/encryption/run.sh DIRECTORY 1.5 5 | .venv/bin/python -m bench.micro read encryption",
        _DESIGN + "2026-11-24-encryption.md#what-it-costs",
    ),
    Subject(
        "encryption-stores",
        "Encryption in a whole store",
        ".venv/bin/python -m bench.encryption.stores DIRECTORY --rounds 3 --seconds 3",
        _DESIGN + "2026-11-24-encryption.md#what-it-costs",
    ),
    Subject(
        "grants",
        "Grants of one metadata server worker",
        "sudo .venv/bin/python -m bench.dataplane.grants --realtime",
        _DESIGN + "2026-11-26-direct-access.md#measured",
    ),
    Subject("ring", "Rings", ".venv/bin/python -m bench.ring.run", "../docs/comparison.md"),
    Subject(
        "operator", "An operator with a hundred clusters", "make bench-operator", _DESIGN + "2026-11-21-operator.md"
    ),
    Subject(
        "advise",
        "Predictions of `swiftlet advise`",
        "make bench-advise",
        _DESIGN + "2026-11-28-advice.md#measured",
    ),
    Subject(
        "advise-coded",
        "Predictions of `swiftlet advise` for objects with erasure coding",
        "make bench-advise",
        _DESIGN + "2026-11-28-advice.md#measured",
    ),
    Subject(
        "store",
        "The native store beside its disk",
        "bench/store/run.sh DIRECTORY",
        _DESIGN + "2026-11-21-volumes.md#measured",
        came_out="Met: durable puts (bar 0.6 of appending as many bytes), gets (300,000 on one core), large writes and "
        "reads by `sendfile` (0.85 of a plain file), puts and gets among 1,000,000 objects (1.15 of those among "
        "10,000). **Not met**: a stat of any (1.15).",
    ),
    Subject(
        "store-many",
        "The native store with millions of objects",
        "bench/store/run.sh DIRECTORY many",
        _DESIGN + "2026-11-21-volumes.md#measured",
        came_out="Met: a start within 10 s, 200 bytes of memory and a file for 1,000 objects.",
    ),
    Subject(
        "openstack-settings",
        "OpenStack Swift with several settings",
        ".venv/bin/python -m bench.peers.tuning",
        came_out="Which settings OpenStack Swift is measured with: the best by the geometric mean of all four "
        "workloads, which is the first one.",
    ),
    Subject(
        "dataplane",
        "Small requests through native object servers",
        "bench/dataplane/run.sh DIRECTORY 3",
        came_out="Three object servers and a client of one thread, 20 requests of 10 KiB in flight; a PUT counts when "
        "all three copies are durable. Rows are not part of it, nor are HTTP and anything that Python does. So 10,000 "
        "PUT/s at 0.12 ms and GETs at 0.035 ms through a proxy need object servers that cost less than these.",
    ),
    Subject(
        "dataplane-front",
        "Small requests through the proxy, with and without its front",
        ".venv/bin/python -m bench.dataplane.front DIRECTORY",
        _DESIGN + "2026-11-21-front.md#measured",
    ),
    Subject(
        "dataplane-realtime",
        "Small requests before all else that the machine does",
        ".venv/bin/python -m bench.dataplane.front DIRECTORY --rounds 5 --seconds 1 --workers 1 --clients 20 "
        "--only front --realtime",
        _DESIGN + "2026-11-21-front.md#measured",
        came_out="Devices and journals in memory. 10,000 PUT/s and DELETE/s are reached, at 0.15 and 0.11 ms of "
        "all processes each (aim 0.12); a 99th percentile of at most 4 times the median is **not shown**. "
        "On the disk, among builds of others, it was 2,246 PUTs and 2,240 DELETEs a second.",
    ),
    Subject(
        "dataplane-share",
        "Where the processor time of small requests goes",
        ".venv/bin/python -m bench.dataplane.flame DIRECTORY --seconds 5 --graphs bench/dataplane",
        _DESIGN + "2026-11-21-front.md#measured",
        came_out="Shares of the samples of all processes under 20 clients, by `perf`: "
        "[PUT](dataplane/front-put.svg), [GET](dataplane/front-get.svg).",
    ),
    Subject(
        "dataplane-large",
        "One object of 1 GiB through the API",
        "make bench-large",
        _DESIGN + "2026-11-22-large-bodies.md#past-the-page-cache",
        came_out="PUT is to have 60 % of what MD5 or the disk allows: met on the disk; in memory it has 52 % of MD5's "
        "rate. GET is to have 2 GB/s: reached, but not each time.",
    ),
    Subject(
        "dataplane-long",
        "Long objects by the front and by Python",
        ".venv/bin/python -m bench.dataplane.long DIRECTORY",
        _DESIGN + "2026-11-30-long-answers.md#measured",
    ),
    Subject(
        "dataplane-middle",
        "Objects of middle sizes",
        ".venv/bin/python -m bench.dataplane.middle DIRECTORY --rounds 1 --seconds 3",
        _DESIGN + "2026-11-22-large-bodies.md#past-the-page-cache",
        came_out="Two proxy workers, on the disk, two runs.",
    ),
    Subject(
        "dataplane-memory",
        "Memory with two hundred large uploads at once",
        "make bench-memory MEMORY_ARGS='/dev/shm/memory --gib 2.5 --hold 5'",
        _DESIGN + "2026-11-22-large-bodies.md#past-the-page-cache",
        came_out="200 uploads of 1 GiB, begun and sent to at full speed until 2.5 GiB had come, held open with "
        "their pipes full, then cut. No upload was refused, and 20 s after the cut not a byte was left on "
        "the devices. The bar, 512 MiB for any process, is met.",
    ),
    Subject(
        "dataplane-etags",
        "ETags by MD5 and by xxh3",
        ".venv/bin/python -m bench.dataplane.etags DIRECTORY --rounds 3",
        _DESIGN + "2026-11-25-xxh3-etags.md#what-128-bits-cost",
        came_out="One store in memory with a policy of each kind, in turns over one connection; compare within it. "
        "XXH3-128 beside xxh3-64 costs nothing that can be measured.",
    ),
    Subject(
        "listing",
        "Pages of a container of 5,000,000 rows",
        "PYTHONPATH=services .venv/bin/python -m bench.listing.bench_pages --rows 5000000",
        _DESIGN + "2026-11-21-rows.md#measured",
        came_out="A server process and the proxy's code in another one. The bars, 50 ms for 1,000 rows and 300 ms for "
        "10,000, are met.",
    ),
    Subject(
        "listing-database",
        "A container's database by itself",
        ".venv/bin/python -m bench.listing.bench_listing --rows 5000000",
        _DESIGN + "2026-11-21-rows.md#measured",
    ),
    Subject(
        "listing-server",
        "Rows of large containers through a container server",
        ".venv/bin/python -m bench.listing.bench_sharded --rows 5000000 --parts 1 8",
        _DESIGN + "2026-11-21-sharding.md#done-and-not-done",
        came_out="One replica, 8 writers, 1,000 rows in a request while it is filled and 500 afterwards, in no "
        "order; *in 8* is the same container in 8 databases from the begin, at a load of 15 to 30. The "
        "bar of 5,000 rows/s is met while one database is filled, and in 8; **not shown** for rows in no "
        "order into one of 5,000,000.",
    ),
    Subject(
        "listing-quiet",
        "Rows into a container, on a quiet machine",
        ".venv/bin/python -m bench.listing.bench_sharded --rows 1500000 --quiet",
        _DESIGN + "2026-11-21-sharding.md#done-and-not-done",
        came_out="The bar of 5,000 rows/s is met.",
    ),
    Subject(
        "listing-claims",
        "PUTs under precise quotas",
        "PYTHONPATH=services .venv/bin/python -m bench.listing.bench_claims DIRECTORY --seconds 3",
        _DESIGN + "2026-11-21-quotas.md",
        came_out="50 writers of empty objects through one proxy process, all of one account.",
    ),
    Subject(
        "modes",
        "Through the proxies and directly",
        "make bench-modes",
        _DESIGN + "2026-11-28-large-objects-directly.md#measured",
        came_out="M1 is through the proxies, M2 directly; ETags are MD5, the devices' files are on a disk. At 10 MiB "
        "and more M2 is to have twice M1's rate: met for GET of 10 MiB, and **not met** for PUT (1.4 times by one "
        "client, 1.0 by eight, who have 0.68 GB/s of three copies written to this disk in either mode) and for one "
        "stream of 100 MB and 1 GB ([latency](#latency-beside-openstack-swift-as-in-swift-xs-figure-8)). Batches of 64 "
        "are to have 4 times the rate of singles: met. GET of 1 GiB is to have 85 % of the transport alone: met (93 "
        "%).",
    ),
    Subject(
        "modes-small",
        "Small objects through the proxies and directly",
        ".venv/bin/python -m bench.modes.run --rounds 3 --seconds 0.8 --sizes 10240 --small --whole 0",
        _DESIGN + "2026-11-28-large-objects-directly.md#measured",
        came_out="The bar, 1.3 times the rate of the proxies directly, is met.",
    ),
    Subject(
        "modes-latency",
        "Latency beside OpenStack Swift, as in Swift-X's figure 8",
        "unshare --net .venv/bin/python -m bench.modes.swiftx --sizes 1 10 100 1000 --rounds 3 --seconds 0",
        _DESIGN + "2026-11-28-large-objects-directly.md#measured",
        came_out="From a file and into a file, all of it on one disk, in turns. Over HTTP the client computes both "
        "digests that an ETag may be. One plain stream of 100 MB or 1 GB is hardly faster directly than through the "
        "proxies (PUT 1.06 and 1.02 times M1, near 1.16 and 1.39; GET 0.82 and 0.88, near 1.14 and 1.13), and neither "
        "is a GET of 1 MB. Clients send objects of more than 256 MiB in segments, several at a time; that was not "
        "measured here, and neither was 5 GB, for which two stores had no room.",
    ),
    Subject(
        "modes-mixes",
        "Mixes of large objects beside OpenStack Swift, as in Swift-X's table III",
        "unshare --net .venv/bin/python -m bench.modes.swiftx --sizes --scale 50 --seconds 8 --rounds 3 "
        "--directory /dev/shm/mixes",
        _DESIGN + "2026-11-28-large-objects-directly.md#measured",
        came_out="Sizes are divided by 50, as both stores are in memory; eight clients, a process each; rounds here "
        "up to 20 s apart, which changed nothing for us: 128 operations a second by M1 in the first mix in a run "
        "without. The bars are 7.3 times OpenStack Swift for M1 (5.5 and 3.4 times, 4.7 in that run: **not met**) and "
        "15 times for M2 (4.4 and 2.8, near 5.2 and 3.6: **not met**). For M1 that is 168 and 67 operations a second "
        "here, for M2 345 and 138. The next table has what copies and digests alone allow: 258 and 58 for M1, 182 "
        "and 42 for M2, near 366 and 88. So M2's bars, but for near clients in the first mix, and M1's in the second "
        "are out of reach on one machine of two processors. A proxy alone that does nothing but receive, hash and "
        "write three files in memory, with clients as plain, did 258 and 59 (pieces of 256 KiB) or 105 to 172 and 39 "
        "(1 MiB).",
    ),
    Subject(
        "modes-floor",
        "What copies and digests alone allow in these mixes",
        "chrt -r 1 .venv/bin/python -m bench.modes.floor --directory /dev/shm",
        _DESIGN + "2026-11-28-large-objects-directly.md#measured",
        came_out="Bounds of operations a second, from what sockets, files in memory, copies and digests cost here, "
        "for one machine of two processors. In four runs sockets and files differed by a third. Files on a disk "
        "cost half as much of processors as these, as long as they are in the page cache.",
    ),
    Subject(
        "peers",
        "A pass of the replicators, ours and OpenStack Swift's",
        "make bench-peers PEERS_ARGS='--objects 30000 --working 1 --unreachable 0 --rounds 0'",
        _DESIGN + "2026-11-21-sync.md#beside-openstack-swifts-daemons",
        came_out="30,000 objects of 100 bytes on five nodes, 2^14 partitions; bytes are the kernel's count of "
        "what one node exchanges with the others. As replicators run in production, from the end of a pass to the "
        "end of the next one, a pass takes 17,493 times fewer bytes than OpenStack Swift's (bar 10,000: met): "
        "0.876 KB, also at 2^18 partitions (bar 1 KB: met), of which 0.252 KB are payload. Nothing passes between "
        "two passes. A pass by a new process (`--once`) takes 2,445 times fewer: most of it opens the streams. "
        "Other work of our replicator's process (expired objects, deleted accounts, the audit of listings) is off, "
        "as OpenStack Swift has daemons of their own for it, which don't run. A round is without the start of "
        "Python. Other work took the machine's processors meanwhile, so seconds say little.",
    ),
    Subject(
        "peers-sync",
        "Container sync with OpenStack Swift",
        "make peers-sync SYNC_PEERS_ARGS='--objects 300'",
        _DESIGN + "2026-11-27-container-sync.md#tests",
        came_out="Names, times, types and bodies are the same on both sides afterwards, and nothing is sent any more "
        "after the first rounds; the times say only that it works.",
    ),
    Subject(
        "peers-front",
        "Small requests beside OpenStack Swift, by itself",
        "make bench-peers PEERS_ARGS='--objects --rounds 2 --seconds 6'",
        _DESIGN + "2026-11-21-front.md#measured",
        came_out="10 KiB, 20 clients, three copies on the same disk. By rate 35 times OpenStack Swift for PUT as "
        "it comes (bar 40: **not met**) and 42 with one worker of each service (met), 60 and 51 times for "
        "GET (bar 25: met). [Stores in turns](#stores-in-turns) has a later run.",
    ),
    Subject("scale", "Cost by size, the largest of each curve", "make bench-scale", "scale" + _PAGE),
    Subject(
        "slo",
        "Large objects of many segments",
        "make bench-slo",
        _DESIGN + "2026-11-22-runs.md#measured",
        came_out="The bar, 90 % of a plain object's speed with 1,000 segments of 1 MiB, is met. The three runs of 11 "
        "rounds had a store of their own each, with nothing else on the machine.",
    ),
    Subject(
        "slo-crowded",
        "Large objects of many segments, on a crowded machine",
        "nice -n -19 .venv/bin/python -m bench.slo.run --segments 700 --rounds 15 --crowded",
        _DESIGN + "2026-11-22-runs.md#measured",
        came_out="Absolute speeds of the same state went from 733 to 1,429 MB/s from turn to turn.",
    ),
    Subject(
        "soak",
        "Requests that keep a worker from others",
        "make soak MINUTES=30",
        came_out="All but two of 62 kinds of requests are within the bar of 100 ms of work at a stretch: deleting "
        "10,000 names that are not there, three such requests at a time, and archives with megabytes of extended "
        "headers are not. Both were within it, or over it once, when the machine had less to do. A value is the bound "
        "of the histogram's bucket. Garbage collection took 7 ms at the most in 20,000 deletions.",
    ),
    Subject(
        "sync",
        "Rounds of the replicator, by mode",
        "make bench-sync SYNC_ARGS='--objects 100000 --nice -19'",
        "sync" + _PAGE,
    ),
    Subject("wan", "Three regions over wide-area links", "make bench-wan", "wan" + _PAGE),
    Subject(
        "wan-cut",
        "A region that is cut off",
        "make bench-wan-cut",
        "wan" + _PAGE,
        came_out="It was cut off for ten minutes; all were equal again in two rounds of its replicator.",
    ),
    Subject(
        "wan-study",
        "Stores over wide-area links, by the study of QFS, Swift and Tahoe-LAFS",
        "make bench-wan-study",
        "wan" + _PAGE,
    ),
    Subject(
        "erasure-stores",
        "Stores with erasure coding beside copies",
        "make bench-erasure ERASURE_ARGS='--turns 2 --reads 12 --times-turns 2'",
        _DESIGN + "2026-11-26-erasure-coding.md#stores",
        came_out="Bars of 6+3, all met: PUT and GET of large objects 0.9 and 0.8 of our copies (1.09 to 1.14, and "
        "0.94), all 4 times OpenStack Swift's 6+3 (4.9 to 5.1), a rebuild 5 times (9.6), 1.5 bytes for each byte.",
    ),
    Subject(
        "erasure-time",
        "Where the time of coded objects goes",
        "make bench-erasure ERASURE_ARGS='--turns 0'",
        _DESIGN + "2026-11-26-erasure-coding.md#stores",
        came_out="Objects of 100 MiB, one client, both policies in turns in one store, by `/proc`. In a second turn "
        "the times differed by up to half.",
    ),
)
DETAILS = (
    ("scale", "Cost by size, measured and beyond", "curves of each, and how far the model is from them"),
    (
        "sync",
        "Rounds of the replicator, in five modes",
        "`batched` takes 135 times fewer bytes than comparing all to all, `lightsync` 9.4 times (bar 7: met); delays "
        "after creations and deletions 1.2 to 1.7 times their bar (**not met**)",
    ),
    (
        "wan",
        "Over the wide area",
        "no trip for a GET, one for a PUT with `majority` or `each-region`, none with `local`; after a region "
        "was cut off for ten minutes 1.06 times what it lacked went over the links",
    ),
)
"""Folders with a page of their own, which has figures or what follows from them, and in a line what came out."""


def subject(name: str) -> Subject:
    """Return the subject with a name. Raises SystemExit, which names those that there are."""
    for one in SUBJECTS:
        if one.name == name:
            return one
    raise SystemExit(f"error: {name!r} is no subject; there are {', '.join(each.name for each in SUBJECTS)}")


def read_lines(output: str) -> list[Measured]:
    """Return what lines of a benchmark say; other lines are for people."""
    return [
        Measured(found["what"].strip(), found["unit"].strip(), tuple(map(float, found["values"].split())))
        for found in _LINE.finditer(output)
    ]


@dataclass(frozen=True)
class Circumstances:
    """When and where something was measured."""

    on: str
    machine: str
    load_average: str
    taken_from: str = ""
    """Where it was written down, when it was measured before its benchmark reported by itself."""
    command: str = ""
    """What repeats it, when that is not the subject's command."""


def here() -> Circumstances:
    """Return those of this machine now."""
    known = facts()
    machine = f"{known['processors']} processors ({known['processor']})"
    return Circumstances(datetime.now(UTC).date().isoformat(), machine, str(known["load_average"]))


def record(
    name: str, measured: Sequence[Measured], folder: Path = DOCUMENTS, where: Circumstances | None = None
) -> Path:
    """Write the document of a subject, with the date and the machine, and return where it is."""
    one = subject(name)
    if not measured or any(not each.values for each in measured):
        raise ValueError(f"{name}: nothing was measured, or there is a thing without values")
    known = {field: value for field, value in asdict(where or here()).items() if value}
    document = {
        "subject": name,
        "command": one.command,
        **known,
        "measured": [asdict(each) for each in measured],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return path


def report(name: str, measured: Sequence[Measured]) -> None:
    """Print what was measured, write its document, and write the page anew: the end of a benchmark."""
    print("\n".join(_table([asdict(one) for one in measured])))
    print(f"wrote {record(name, measured).relative_to(HERE.parent)}")
    update()


def part(folder: Path = DOCUMENTS) -> list[str]:
    """Return the part of the page about all subjects, by paragraphs; a table is one of them."""
    found = [TITLE, _INTRODUCTION]
    for one in SUBJECTS:
        found.append(f"### {one.title}")
        path = folder / f"{one.name}.json"
        if not path.exists():
            found.append(f"Not measured yet: `{one.command}`.")
            continue
        document = json.loads(path.read_text("utf-8"))
        more = f" [More]({one.more})." if one.more else ""
        if taken := document.get("taken_from"):
            where = taken if " " in taken else f"[its page]({taken})"
            more = f" Measured before it reported by itself, and taken from {where}.{more if where == taken else ''}"
        when = f"{document['on']}, {document['machine']}, load average {document['load_average']}"
        found.append(f"`{document['command']}`, {when}.{more}")
        if one.came_out:
            found.append(one.came_out)
        found.append("\n".join(_table(document["measured"])))
    rows = [f"| [{title}]({name}/RESULTS.md) | {came_out} |" for name, title, came_out in DETAILS]
    return [*found, "### With pages of their own", "\n".join(["| what | came out |", "|---|---|", *rows])]


def _table(measured: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| what | unit | median | least to most | rounds |"
    yield "|---|---|---|---|---|"
    for one in measured:
        values = one["values"]
        spread = f"{_number(min(values))} to {_number(max(values))}" if len(values) > 1 else ""
        yield f"| {one['what']} | {one['unit']} | {_number(median(values))} | {spread} | {len(values)} |"


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.3g}"


def run(one: Subject, rounds: int | None) -> None:
    """Run the benchmarks of a subject's crates, and write its document. Raises SystemExit when one fails."""
    environment = os.environ | ({"BENCH_ROUNDS": str(rounds)} if rounds else {})
    measured: list[Measured] = []
    for crate in one.crates:
        command = ["cargo", "bench", "--quiet", "--manifest-path", "native/Cargo.toml", "-p", f"swiftlet-{crate}"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False, cwd=HERE.parent)
        if done.returncode:
            raise SystemExit(f"error: {' '.join(command)} ended with exit code {done.returncode}")
        measured += read_lines(done.stdout)
    report(one.name, measured)


def update(page: Path = PAGE, folder: Path = DOCUMENTS) -> None:
    """Write this part of the page anew, and leave what was measured in a sitting as it is."""
    text = page.read_text("utf-8")
    before, title, _ = text.partition(f"{TITLE}\n")
    if not title:
        raise SystemExit(f"error: {page} has no part {TITLE!r}; write it anew with bench.sitting --page-of")
    page.write_text(before + laid_out(part(folder)), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    of_crates = [one.name for one in SUBJECTS if one.crates]
    running = commands.add_parser("run", help="benchmarks of crates")
    running.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(of_crates)} (default: all)")
    running.add_argument("--rounds", type=int, help="of each thing (default: as many as the benchmark thinks best)")
    commands.add_parser("read", help="what a benchmark prints, from standard input").add_argument("subject")
    taking = commands.add_parser("taken", help="what was written down before, as lines on standard input")
    taking.add_argument("subject")
    taking.add_argument("--on", required=True, help="the day, as 2026-11-22")
    taking.add_argument("--machine", required=True)
    taking.add_argument("--load", required=True, help="load average meanwhile")
    taking.add_argument("--taken-from", default="", help="where it was written down (default: the subject's page)")
    taking.add_argument("--command", default="", help="what repeats it, when that is not the subject's command")
    commands.add_parser("page", help="write the page of the documents that there are")
    arguments = parser.parse_args()
    if arguments.what == "run":
        if arguments.rounds is not None and arguments.rounds < 1:
            parser.error("--rounds must be at least 1")
        chosen = [subject(name) for name in arguments.subjects or of_crates]
        for one in chosen:
            if not one.crates:
                parser.error(f"{one.name} is no benchmark of a crate: {one.command}")
        for one in chosen:
            run(one, arguments.rounds)
    elif arguments.what == "read":
        report(subject(arguments.subject).name, read_lines(sys.stdin.read()))
    elif arguments.what == "taken":
        one = subject(arguments.subject)
        where = Circumstances(
            arguments.on, arguments.machine, arguments.load, arguments.taken_from or one.more, arguments.command
        )
        record(one.name, read_lines(sys.stdin.read()), where=where)
        update()
    else:
        update()


if __name__ == "__main__":
    main()
