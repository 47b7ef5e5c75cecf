"""Which files of the repository are pages of the site, and links between them; knows nothing of MkDocs.

Links in the documents lead from file to file in the repository, so that they work wherever the sources are read. In the
site a link to another page is made relative to it; a link to a file that is no page becomes plain text. A link to
nothing is a problem.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^[ ]*(```|~~~)")
_CODE_OR_LINK = re.compile(
    r"(?P<code>`+[^`]+`+)|(?P<image>!)?\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)"
)
_EXTERNAL = re.compile(r"^[a-z][a-z+.-]*:")
DOCS = "docs"


def outside_docs(root: Path) -> dict[str, str]:
    """Files of the repository that are pages although they are not below docs/, with their place in the site."""
    found = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
    if (root / "bench" / "RESULTS.md").exists():
        found["bench/RESULTS.md"] = "bench/index.md"
    for path in sorted((root / "bench").glob("*/RESULTS.md")):
        found[f"bench/{path.parent.name}/RESULTS.md"] = f"bench/{path.parent.name}.md"
    return found


@dataclass(frozen=True)
class Links:
    """Rewrites the links of pages. `places` has each page's file in the repository and its place in the site."""

    root: Path
    places: dict[str, str]
    problems: list[str] = field(default_factory=list)

    def rewrite(self, text: str, source: str) -> str:
        """Return the text of the page made from the file `source`, with links that work in the site."""
        return _outside_fences(text, lambda prose: self._rewrite_prose(prose, source))

    def _rewrite_prose(self, prose: str, source: str) -> str:
        return _CODE_OR_LINK.sub(lambda found: self._one(found, source), prose)

    def _one(self, found: re.Match[str], source: str) -> str:
        target = found["target"]
        if found["code"] or _EXTERNAL.match(target) or target.startswith("#"):
            return found[0]
        path, _, anchor = target.partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page = self._page(wanted)
        if page is not None:
            there = posixpath.relpath(page, posixpath.dirname(self.places[source]) or ".")
            mark = found["image"] or ""
            return f"{mark}[{found['text']}]({there}{'#' + anchor if anchor else ''})"
        if wanted.startswith("..") or not (self.root / wanted).exists():
            self.problems.append(f"{source} links to {target}, and there is no such file")
        return found["text"]

    def _page(self, wanted: str) -> str | None:
        return self.places.get(wanted) or self.places.get(f"{wanted}/README.md")


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    return "".join(part if code else change(part) for code, part in _parts(text))


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the text in pieces, each with whether it is a fenced block of code."""
    gathered: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if not _FENCE.match(line):
            gathered.append(line)
            continue
        if inside:
            gathered.append(line)
            yield True, "".join(gathered)
            gathered = []
        else:
            yield False, "".join(gathered)
            gathered = [line]
        inside = not inside
    yield inside, "".join(gathered)


def loaded_from_elsewhere(html: str) -> list[str]:
    """Return what a page of the site would load from another host: scripts, style sheets, fonts, pictures."""
    tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", html)
    loading = [tag for tag in tags if not re.search(r"""\brel=["']?(canonical|next|prev|alternate|edit)\b""", tag)]
    return [url for tag in loading for url in re.findall(r"""\b(?:src|href)=["']?((?:https?:)?//[^\s"'>]+)""", tag)]


def repository_path(source: str | os.PathLike[str]) -> str:
    """Return the file in the repository of a page below docs/ whose place in the site is `source`."""
    return f"{DOCS}/{os.fspath(source)}"
