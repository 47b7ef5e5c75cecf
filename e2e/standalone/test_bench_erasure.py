"""`bench.erasure.objects`: its workloads and its tables."""

from __future__ import annotations

from bench.erasure.objects import Extent, Found, ratios, scheme_of, table, workloads
from bench.erasure.stores import stores


def test_medians_and_ratios_are_told() -> None:
    known = stores(scheme_of("6+3"))
    found = Found()
    for store, rates in zip(known, ([100.0, 90.0, 110.0], [80.0], [20.0], [0.0]), strict=True):
        for rate in rates:
            found.add("PUT", store.name, rate)
    found.add("GET", known[1].name, 50.0)
    assert list(table(found, [store.name for store in known]))[2:] == [
        "| PUT | 100 (90 to 110) | 80 | 20 | 0 |",
        "| GET | - | 50 | - | - |",
    ]
    assert list(ratios(found, known)) == [
        "| Swiftlet, 6+3 is | times Swiftlet, 3 copies | times OpenStack, 6+3 |",
        "|---|---|---|",
        "| PUT | 0.80 | - |",
        "| GET | - | - |",
    ]


def test_an_extent_names_its_workloads() -> None:
    titles = [title for title, _ in workloads(Extent(1.0, [100], 16, 4))]
    assert titles == ["PUT 1 MiB, 8 clients", "GET 1 MiB, 8 clients", "PUT 100 MiB", "GET 100 MiB"]
