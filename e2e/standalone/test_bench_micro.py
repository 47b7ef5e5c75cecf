"""How benchmarks of single parts report: lines, documents, and their part of the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.micro import (
    DETAILS,
    DOCUMENTS,
    HERE,
    PAGE,
    SUBJECTS,
    TITLE,
    Measured,
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


def test_every_page_of_a_folder_is_linked() -> None:
    assert [path.parent.name for path in sorted(HERE.glob("*/RESULTS.md"))] == [name for name, *_ in DETAILS]
