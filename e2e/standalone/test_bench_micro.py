"""How benchmarks of single parts report: lines, documents, what some of them tell, and their part of the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench.baseline.wrk import Figures
from bench.dataplane import etags, flame
from bench.listing.bench_sharded import Filled, Timed, reported, written
from bench.listing.bench_sharded import Found as FoundRows
from bench.micro import (
    DETAILS,
    DOCUMENTS,
    HERE,
    PAGE,
    SUBJECTS,
    TITLE,
    Circumstances,
    Measured,
    Subject,
    part,
    read_lines,
    record,
    subject,
    update,
)
from bench.modes import swiftx
from bench.peers import front
from bench.results import laid_out


def test_lines_of_a_benchmark_are_read_among_others() -> None:
    output = "compiling\nmeasured: 6+3, encode, a stripe | GB/s | 20.7000 19.9000\nmeasured: late | % | -0.5000\nend\n"
    assert read_lines(output) == [
        Measured("6+3, encode, a stripe", "GB/s", (20.7, 19.9)),
        Measured("late", "%", (-0.5,)),
    ]


def test_a_document_has_the_machine_and_is_a_table_of_the_page(tmp_path: Path) -> None:
    record("hash", [Measured("md5", "GB/s", (0.5, 0.7, 0.6)), Measured("calls", "calls", (12_345,))], tmp_path)
    document = json.loads((tmp_path / "hash.json").read_text())
    assert document["command"] == subject("hash").command
    assert "processors" in document["machine"]
    lines = part(tmp_path)
    table = lines[lines.index("### Digests") + 2]
    assert "| md5 | GB/s | 0.6 | 0.5 to 0.7 | 3 |\n| calls | calls | 12,345 |  | 1 |" in table
    assert "Not measured yet: `make bench-advise`." in lines


def test_nothing_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hash: nothing was measured"):
        record("hash", [], tmp_path)
    with pytest.raises(SystemExit, match="'hsh' is no subject; there are hash, "):
        subject("hsh")


def test_the_page_keeps_what_a_sitting_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Measurements\n\n| a | b |\n\n{TITLE}\n\nold\n")
    update(page, DOCUMENTS)
    assert page.read_text() == "# Measurements\n\n| a | b |\n\n" + laid_out(part(DOCUMENTS))
    page.write_text("# Measurements\n")
    with pytest.raises(SystemExit, match="has no part"):
        update(page, DOCUMENTS)


def test_the_page_that_is_kept_is_made_of_its_documents() -> None:
    assert PAGE.read_text("utf-8").endswith("\n" + laid_out(part(DOCUMENTS))), "make bench-page writes it anew"
    assert {path.stem for path in DOCUMENTS.glob("*.json")} <= {one.name for one in SUBJECTS}


def test_every_page_of_a_folder_is_linked_and_its_main_numbers_are_reported() -> None:
    pages = [path.parent.name for path in sorted(HERE.glob("*/RESULTS.md"))]
    assert pages == [name for name, *_ in DETAILS]
    assert {one.more.removesuffix("/RESULTS.md") for one in SUBJECTS if one.more.endswith("/RESULTS.md")} == set(pages)
    assert {one.name for one in SUBJECTS} == {path.stem for path in DOCUMENTS.glob("*.json")}


@pytest.mark.parametrize("one", [one for one in SUBJECTS if not one.crates], ids=lambda one: one.name)
def test_a_benchmark_reports_its_subject(one: Subject) -> None:
    named = rf'^SUBJECT = "{one.name}"$(?s:.*)report\(\s*SUBJECT\b'
    said = re.compile(rf'report\(\s*"{one.name}"|{named}|bench\.micro read {one.name}$', re.MULTILINE)
    sources = [path.read_text("utf-8") for kind in ("py", "sh") for path in HERE.glob(f"*/*.{kind}")]
    assert any(said.search(source) for source in (*sources, one.command))


def test_what_was_measured_before_says_where_it_was_written_down(tmp_path: Path) -> None:
    where = Circumstances("2026-11-22", "2 processors", "3", "slo/RESULTS.md", "make it so")
    record("slo", [Measured("speed", "%", (101, 92))], tmp_path, where)
    text = part(tmp_path)[part(tmp_path).index(f"### {subject('slo').title}") + 1]
    assert text.startswith("`make it so`, 2026-11-22, 2 processors, load average 3.")
    assert text.endswith("taken from [its page](slo/RESULTS.md).")
    record("slo", [Measured("speed", "%", (101, 92))], tmp_path, replace(where, taken_from="`a page` of 3b4e3290"))
    text = part(tmp_path)[part(tmp_path).index(f"### {subject('slo').title}") + 1]
    assert text.endswith(f"taken from `a page` of 3b4e3290. [More]({subject('slo').more}).")


def test_ratios_of_etags_need_no_second_turn() -> None:
    assert etags.ratio([3.0], [2.0]) == "1.50"
    assert etags.ratio([3.0, 4.0], [2.0, 2.0]) == "1.75 (1.38 to 2.12)"


def test_latency_is_told_with_its_parts() -> None:
    assert swiftx.split([(0.5, 0.25, 0.125), (0.25, 0.25, 0.125)]) == {
        "": (500.0, 250.0),
        "digests": (250.0, 250.0),
        "file": (125.0, 125.0),
        # Digests of one piece are computed while another one is read: all of it may take less than both.
        "the rest": (125.0, 0.0),
    }


def test_mixes_are_told_as_multiples_of_openstack_by_medians() -> None:
    rates = {"OpenStack": [(2.0, 20.0), (6.0, 60.0)], "M1": [(8.0, 80.0), (8.0, 80.0)]}
    assert list(swiftx.of_mix("mix", rates)) == [
        Measured("mix, OpenStack", "1/s", (2.0, 6.0)),
        Measured("mix, OpenStack, bytes", "MB/s", (20.0, 60.0)),
        Measured("mix, M1", "1/s", (8.0, 8.0)),
        Measured("mix, M1, bytes", "MB/s", (80.0, 80.0)),
        Measured("mix, M1, by OpenStack's rate (bar 7.3)", "times", (2.0,)),
    ]


def test_small_requests_are_told_as_multiples_of_openstack_in_the_same_round() -> None:
    found = {
        (operation, system): [front.Round(Figures(10, rate, 1.0, 2.0, 0), cpu_ms)]
        for operation in front.OPERATIONS
        for system, rate, cpu_ms in (("OpenStack", 100.0, 8.0), *((ours, 4500.0, 0.5) for ours in front.OURS))
    }
    told = list(front.reported(found))
    assert Measured("PUT 10 KiB, OpenStack, processor time of all", "ms", (8.0,)) in told
    assert Measured("PUT 10 KiB, Swiftlet, one worker, by OpenStack's rate (bar 40)", "times", (45.0,)) in told
    assert "| GET 10 KiB | Swiftlet, as it comes | 45.0 x | 16.0 x less | 25 x |" in list(front.rows(found))


def test_rows_are_told_by_the_databases_they_are_in() -> None:
    found = FoundRows(Filled(5000, 2.0, 1.0), Filled(100_000, 50.0, 1.0), {"page of 10": Timed((3.0, 5.0), 2.0)})
    assert list(written(found, 1)) == [
        Measured("fill with 5,000 rows, in one", "rows/s", (2500.0,)),
        Measured("100,000 rows more, in one", "rows/s", (2000.0,)),
    ]
    assert list(reported(found, 8))[2:] == [
        Measured("page of 10, in 8", "ms", (3.0, 5.0)),
        Measured("page of 10, in 8, processor time", "ms", (2.0,)),
    ]


def test_shares_are_told_beside_each_other_and_the_largest_first() -> None:
    found = {"PUT": {"Python": 0.25, "SQLite": 0.125}, "GET": {"Python": 0.5, "disk": 0.5}}
    assert [(one.what, *one.values) for one in flame.reported(found)] == [
        ("PUT, Python", 25.0),
        ("GET, Python", 50.0),
        ("PUT, disk", 0.0),
        ("GET, disk", 50.0),
        ("PUT, SQLite", 12.5),
        ("GET, SQLite", 0.0),
    ]
