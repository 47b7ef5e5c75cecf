"""Expressions of Prometheus, taken apart by a parser."""

from __future__ import annotations

import re
from dataclasses import dataclass

import promql_parser


@dataclass(frozen=True, slots=True)
class Selector:
    """A series that an expression asks for; `equal` are the labels that it compares for equality."""

    metric: str
    labels: frozenset[str]
    equal: dict[str, str]


@dataclass(frozen=True, slots=True)
class Parsed:
    """What an expression asks for, and the labels that it aggregates by."""

    selectors: list[Selector]
    grouped_by: frozenset[str]


def parsed(expression: str) -> Parsed:
    """Take an expression apart, Grafana's variables filled in; ValueError for what Prometheus would refuse."""
    filled = expression.replace("$__rate_interval", "5m")
    filled = re.sub(r"\$(\w+)", r"any-\1", filled)
    selectors: list[Selector] = []
    grouped: set[str] = set()

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql_parser.VectorSelector):
            matchers = node.matchers.matchers
            equal = {one.name: one.value for one in matchers if one.op == promql_parser.MatchOp.Equal}
            selectors.append(Selector(str(node.name), frozenset(one.name for one in matchers), equal))
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            assert node.modifier.type == promql_parser.AggModifierType.By
            grouped.update(node.modifier.labels)

    promql_parser.walk(promql_parser.parse(filled), visit)
    return Parsed(selectors, frozenset(grouped))
