"""What MkDocs calls while it builds the site. A warning here fails the build, because it is strict."""

from __future__ import annotations

import logging
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from hack.site.diagrams import figure
from hack.site.pages import Links, loaded_from_elsewhere, outside_docs, repository_path

ROOT = Path(__file__).resolve().parents[2]
log = logging.getLogger("mkdocs.plugins.site")
_sources: dict[str, str] = {}
"""For each page of the site, the file of the repository that it is made from."""


def on_config(config: MkDocsConfig) -> None:
    """Register the rendering of Mermaid in fenced blocks."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "mermaid", "class": "diagram", "format": _drawn})


def _drawn(source: str, *arguments: object, **options: object) -> str:
    """Return the figure of a fenced block. Errors are logged here, because the extension that calls this drops them."""
    try:
        return figure(source)
    except Exception as wrong:
        log.warning("a diagram can't be drawn: %r\n%s", wrong, source)
        raise


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files outside of docs/."""
    for source, place in outside_docs(ROOT).items():
        _sources[place] = source
        files.append(File.generated(config, place, content=(ROOT / source).read_text("utf-8")))
    for one in files.documentation_pages():
        _sources.setdefault(one.src_uri, repository_path(one.src_uri))
    for one in files.media_files():
        _sources.setdefault(one.src_uri, repository_path(one.src_uri))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links between files of the repository links between pages."""
    links = Links(ROOT, {source: place for place, source in _sources.items()})
    text = links.rewrite(markdown, _sources[page.file.src_uri])
    for problem in links.problems:
        log.warning("%s", problem)
    return text


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that would load anything from another host."""
    for url in loaded_from_elsewhere(output):
        log.warning("%s loads %s from another host", page.file.src_uri, url)
    return output
