"""Mermaid drawn as SVG while the site is built, so that no script has to be loaded to read it.

Each picture is an image with its SVG inside: styles and identifiers of one do not meet those of another.
"""

from __future__ import annotations

import base64
import html
import re

from mmdr import render

_BACKEND = "merman"
_NOT_DRAWN = re.compile(r"-->|->>|--|[{}()\[\]|;\"]+")


def figure(source: str) -> str:
    """Return the diagram as an HTML figure; ValueError says what is wrong with its source."""
    drawn = base64.b64encode(render(source, backend=_BACKEND).svg().encode()).decode()
    return (
        '<figure class="diagram" style="margin:1em 0;text-align:center">'
        f'<img alt="{html.escape(_words(source))}" style="background:#fff;max-width:100%" '
        f'src="data:image/svg+xml;base64,{drawn}"></figure>'
    )


def _words(source: str) -> str:
    """Return what a diagram says, for those who can't see it."""
    return " ".join(_NOT_DRAWN.sub(" ", source).split())
