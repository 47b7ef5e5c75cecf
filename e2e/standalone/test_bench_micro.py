"""How benchmarks of single parts report: lines, documents, and their part of the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("one", [one for one in SUBJECTS if not (one.crates or one.is_taken)], ids=lambda one: one.name)
def test_a_benchmark_reports_its_subject(one: Subject) -> None:
    said = re.compile(rf'report\(\s*"{one.name}"|bench\.micro read {one.name}$', re.MULTILINE)
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


def test_what_is_taken_says_from_where() -> None:
    documents = {one.name: json.loads((DOCUMENTS / f"{one.name}.json").read_text("utf-8")) for one in SUBJECTS}
    assert all(documents[one.name]["taken_from"] for one in SUBJECTS if one.is_taken)
