"""The documentation as a site: links between files become links between pages, and what is missing is a problem."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hack.site.pages import Links, loaded_from_elsewhere, outside_docs, repository_path

ROOT = Path(__file__).parents[2]
PLACES = {
    "README.md": "index.md",
    "bench/sync/RESULTS.md": "bench/sync.md",
    "docs/wire.md": "wire.md",
    "docs/guide/README.md": "guide/README.md",
    "docs/guide/install.md": "guide/install.md",
}


@pytest.fixture
def links(tmp_path: Path) -> Links:
    """A repository with the pages above and one file that is no page."""
    for name in (*PLACES, "services/one.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return Links(tmp_path, PLACES)


@pytest.mark.parametrize(
    ("source", "text", "rewritten"),
    [
        ("README.md", "[w](docs/wire.md#frames)", "[w](wire.md#frames)"),
        ("README.md", "[g](docs/guide/)", "[g](guide/README.md)"),
        ("docs/guide/install.md", "[r](../../README.md#on-kubernetes)", "[r](../index.md#on-kubernetes)"),
        ("docs/guide/install.md", "[b](../../bench/sync/RESULTS.md)", "[b](../bench/sync.md)"),
        ("docs/wire.md", "[`one`](../services/one.py) and [all](../services)", "`one` and all"),
        ("docs/wire.md", "[over\nlines](guide/install.md)", "[over\nlines](guide/install.md)"),
        (
            "docs/wire.md",
            "[here](#frames), [there](https://example.org/x)",
            "[here](#frames), [there](https://example.org/x)",
        ),
        ("docs/wire.md", "`[x](nothing.md)`", "`[x](nothing.md)`"),
        ("docs/wire.md", "```\n[x](nothing.md)\n```\n[w](wire.md)", "```\n[x](nothing.md)\n```\n[w](wire.md)"),
    ],
)
def test_links_lead_to_pages(links: Links, source: str, text: str, rewritten: str) -> None:
    assert links.rewrite(text, source) == rewritten
    assert links.problems == []


@pytest.mark.parametrize("target", ["nothing.md", "../services/nothing.py", "../../elsewhere/README.md"])
def test_a_link_to_nothing_is_a_problem(links: Links, target: str) -> None:
    links.rewrite(f"[x]({target})", "docs/wire.md")
    assert links.problems == [f"docs/wire.md links to {target}, and there is no such file"]


@pytest.mark.parametrize(
    ("html", "urls"),
    [
        ('<script src="https://cdn.example.org/x.js"></script>', ["https://cdn.example.org/x.js"]),
        ('<link rel="stylesheet" href="//fonts.example.org/a">', ["//fonts.example.org/a"]),
        ("<img src=https://example.org/x.png>", ["https://example.org/x.png"]),
        (
            '<a href="https://example.org">x</a><script src="assets/x.js"></script><link rel="canonical" href="https://x">',
            [],
        ),
        ('<img src="data:image/svg+xml;base64,AA//AA">', []),
    ],
)
def test_what_a_page_loads_from_another_host_is_found(html: str, urls: list[str]) -> None:
    assert loaded_from_elsewhere(html) == urls


def test_pages_outside_of_docs_are_there() -> None:
    found = outside_docs(ROOT)
    assert found["README.md"] == "index.md"
    assert found["bench/sync/RESULTS.md"] == "bench/sync.md"
    assert all((ROOT / source).is_file() for source in found)
    assert repository_path("guide/install.md") == "docs/guide/install.md"


def test_each_design_note_stands_in_the_index_with_its_status() -> None:
    rows = re.findall(r"^\| \[.+?\]\((.+?\.md)\) \| .+ \| .+ \|$", (ROOT / "docs/design/README.md").read_text(), re.M)
    assert sorted(rows) == sorted(path.name for path in (ROOT / "docs" / "design").glob("2*.md"))


def test_the_site_is_built_so_that_warnings_count() -> None:
    step = (ROOT / "hack" / "check").read_text().split("build_docs() {", 1)[1].split("\n}", 1)[0]
    assert "mkdocs build --strict" in step
    assert "quiet" not in step, "MkDocs counts no warnings then"
