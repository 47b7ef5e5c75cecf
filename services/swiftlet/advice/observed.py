"""The load of a running store, from two readings of its services' metrics (Prometheus' text format)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from swiftlet.advice.errors import AdviceError
from swiftlet.advice.load import Load
from swiftlet.advice.sizes import fixed

MAX_PAGE_BYTES = 16 << 20
"""Bytes of a page of metrics."""
_LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? ([^ ]+)')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

Key = tuple[str, frozenset[tuple[str, str]]]
Reading = Mapping[Key, float]


def parse(page: str) -> dict[Key, float]:
    """Return the samples of a page by name and labels; what is no sample is skipped."""
    found = {}
    for line in page.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line.strip())
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        found[match[1], frozenset(_LABEL.findall(match[2] or ""))] = value
    return found


def growth(before: Reading, after: Reading) -> dict[Key, float]:
    """Return by how much counters grew; one that began anew meanwhile counts from there."""
    found = {}
    for key, now in after.items():
        then = before.get(key, 0.0)
        found[key] = now - then if now >= then else now
    return found


def observed(pages: Iterable[tuple[Reading, Reading]], seconds: float, stored_bytes: float = 0.0) -> Load:
    """Return the load between two readings of each service: all proxies, and object servers where they are known.

    Without object servers a GET is taken for one of an object: proxies don't tell listings apart. Sizes are means: of
    bodies received for those of writes, of bodies sent for those of reads. AdviceError when there is no proxy.
    """
    methods: dict[str, float] = defaultdict(float)
    bodies: dict[str, float] = defaultdict(float)
    asked: dict[str, float] = defaultdict(float)
    has_proxy = False
    for before, after in pages:
        for (name, labels), value in growth(before, after).items():
            told = dict(labels)
            if told.get("service") == "proxy":
                has_proxy = True
                if name == "swiftlet_http_requests_total" and told.get("status", "")[:1] == "2":
                    methods[told.get("method", "")] += value
                elif name in _BODIES:
                    bodies[_BODIES[name]] += value
            elif name == "swiftlet_object_requests_total" and told.get("outcome") == "ok":
                asked[told.get("operation", "")] += value
    if not has_proxy:
        raise AdviceError("metrics: no page of a proxy is among them; name those of all proxies")
    reads, lists = methods["GET"], 0.0
    if asked:
        # An object server answers a GET of an object once; what is left of the proxies' is listings.
        lists = max(0.0, reads - asked["get"])
        reads -= lists
    rates = {
        "create": methods["PUT"],
        "read": reads,
        "delete": methods["DELETE"],
        "head": methods["HEAD"],
        "list": lists,
    }
    written = bodies["in"] / methods["PUT"] if methods["PUT"] else 0.0
    read = bodies["out"] / reads if reads else 0.0
    return Load(
        per_second={name: value / seconds for name, value in rates.items()},
        sizes=fixed(written or read),
        read_sizes=fixed(read or written),
        stored_bytes=stored_bytes,
    )


_BODIES = {"swiftlet_http_received_bytes_total": "in", "swiftlet_http_sent_bytes_total": "out"}
