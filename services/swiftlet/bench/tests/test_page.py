"""The page of a result: whole, by itself, and with every plot that there is something to show in."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from swiftlet.bench.page import render
from swiftlet.bench.plots import Axis, Line, plot
from swiftlet.bench.results import OperationResult
from swiftlet.bench.tests.results import operation, result, step
from swiftlet.bench.times import Times


class Parsed(HTMLParser):
    """What elements a page has, and what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [f"{tag} {name}" for name, _ in attrs if name in {"src", "href", "srcset", "data", "xlink:href"}]


def svgs(text: str) -> list[ElementTree.Element]:
    parts = [part.partition("</svg>")[0] for part in text.split("<svg")[1:]]
    return [ElementTree.fromstring(f"<svg{part}</svg>") for part in parts]


def titles(text: str) -> list[str]:
    return [one.attrib["aria-label"] for one in svgs(text)]


def test_a_page_stands_by_itself(document: dict[str, Any]) -> None:
    document["title"] = "A <b>bold</b> title"
    two = {"read": operation(p=5), "create": operation(p=7)}
    page = render(result(document, [step(operations=two), step(connections=8, operations=two)]))
    parsed = Parsed(page)
    assert parsed.loaded == []
    assert "script" not in parsed.tags
    assert "b" not in parsed.tags
    assert parsed.tags.count("tr") == 1 + 2 * 3
    assert titles(page) == [
        "Operations per second",
        "Latency (all)",
        "Latency by percentile, 4 clients",
        "Latency by percentile, 8 clients",
        "Operations per second over time",
        "99th percentile of latency over time",
    ]
    assert "a processor" in page


def test_one_step_has_no_plot_over_steps(document: dict[str, Any]) -> None:
    page = render(result(document, [step(), step(run=2)]))
    assert [title for title in titles(page) if "by percentile" not in title] == [
        "Operations per second over time",
        "99th percentile of latency over time",
    ]


def test_a_result_without_any_operation_is_shown(document: dict[str, Any]) -> None:
    empty = OperationResult(succeeded=0, ended=0, bytes=0, latency=Times(), first_byte=Times(), failures={})
    nothing = step(operations={"read": empty}).model_copy(update={"points": (), "window_s": 0.0, "all_succeeded": 0})
    assert titles(render(result(document, [nothing]))) == []


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("ys", [[0.0, 0.0], [5.0], [1e-6, 1e9], [0.0, 3.0], [2.0, 2.0]])
def test_plots_stay_within_their_frame(is_log: bool, ys: list[float]) -> None:
    line = Line("a & b", [(float(x), y) for x, y in enumerate(ys)])
    (drawn,) = svgs(plot("title", Axis("x", str), Axis("y", str, is_log=is_log), [line]))
    (path,) = drawn.iter("polyline")
    for place in path.attrib["points"].split():
        x, y = map(float, place.split(","))
        assert 0 <= x <= 640
        assert 0 <= y <= 300
    assert plot("title", Axis("x", str), Axis("y", str), []) == ""
