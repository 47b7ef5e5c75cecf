"""Places of pods and volumes: compares labels of nodes with the requirements of a pod or a volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swiftlet_operator.manifests import HOSTNAME, TOPOLOGY_ZONE, Manifest, labels_of, name_of

NODE_NAME = "metadata.name"
_NODE_KEYS = frozenset({"hostname", "node", "nodename", "nodeid"})
"""Last parts of topology keys by which storage drivers bind a volume to one node."""


def terms_of(volume: Manifest) -> list[dict[str, Any]]:
    """Return where a volume can be reached from: one of these terms has to fit a node; none means everywhere."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    return required.get("nodeSelectorTerms") or []


def names_a_node(term: Mapping[str, Any]) -> bool:
    """Return whether a term binds to one node rather than to a zone."""
    fields = [one.get("key") for one in term.get("matchFields") or []]
    keys = [str(one.get("key")) for one in term.get("matchExpressions") or []]
    return NODE_NAME in fields or any(key == HOSTNAME or key.rpartition("/")[2] in _NODE_KEYS for key in keys)


def fits(node: Manifest, term: Mapping[str, Any]) -> bool:
    """Return whether a node fulfils a term."""
    labels = labels_of(node)
    expressions = [(labels.get(one["key"]), one) for one in term.get("matchExpressions") or []]
    fields = [(name_of(node), one) for one in term.get("matchFields") or [] if one.get("key") == NODE_NAME]
    return all(_holds(value, one) for value, one in (*expressions, *fields))


def _holds(value: str | None, expression: Mapping[str, Any]) -> bool:
    """Return whether a label's value fulfils one requirement; an unknown operator counts as fulfilled, to be on the
    safe side.
    """
    values = expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return True


def wanted_labels(terms: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the labels with one value that terms of a volume ask for, by key: these have to be given back
    to a node.
    """
    found: dict[str, str] = {}
    for term in terms:
        for one in term.get("matchExpressions") or []:
            values = one.get("values") or []
            if one.get("operator") == "In" and values:
                found.setdefault(str(one["key"]), str(values[0]))
    return found


def zone_wanted(pod: Manifest) -> str | None:
    """Return the zone that a pod must be in, None when it may be anywhere."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for one in term.get("matchExpressions") or []:
            if one.get("key") == TOPOLOGY_ZONE and one.get("values"):
                return str(one["values"][0])
    return None
