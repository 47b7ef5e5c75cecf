"""`e2e.standalone.matrix_kills`: what is killed when, and what counts as being under way."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from e2e.standalone import matrix_kills as matrix
from e2e.standalone.lanes import COPYING


def test_what_was_hit_least_of_what_is_under_way_is_hit_next() -> None:
    hits = Counter({("write", "object"): 2, ("write", "proxy"): 1, (COPYING, "object"): 1})
    kinds = ["object", "proxy", "mover"]
    assert matrix.wanted(hits, frozenset(), kinds) == []
    assert matrix.wanted(hits, frozenset(["write"]), kinds) == [("write", "proxy")]
    assert matrix.wanted(hits, frozenset(["write", COPYING]), kinds) == [(COPYING, "proxy"), (COPYING, "mover")]
    assert matrix.wanted(hits, frozenset(["write", COPYING]), ["object"]) == [(COPYING, "object")]


@pytest.mark.parametrize(
    ("packing", "what"),
    [
        (None, set()),
        ({"made": 0, "rewritten": 0, "partitionForS": None}, set()),
        ({"made": 0, "rewritten": 0, "partitionForS": 0.001}, set()),
        ({"made": 0, "rewritten": 0, "partitionForS": 0.5}, {"pack"}),
        ({"made": 2, "rewritten": 0, "partitionForS": None}, {"pack"}),
        ({"made": 0, "rewritten": 1, "partitionForS": None}, {"pack", "repack"}),
    ],
)
def test_replicators_pack_while_they_work_in_a_partition_or_have_done_so_in_a_round(
    packing: dict[str, Any] | None, what: set[str]
) -> None:
    assert matrix.is_packing({"packing": packing}) == what


def test_a_device_lacks_what_the_replicator_knows_of() -> None:
    def report(behind: int) -> dict[str, Any]:
        rings = {"object-0": {"behind": 9}, "object-1": {"behind": behind}}
        return {"devices": {"node/d1": {"rings": rings}, "node/d11": {"rings": {}}}}

    assert matrix.lacks(report(3), "d1")
    assert not matrix.lacks(report(0), "d1")
    assert not matrix.lacks(report(3), "d11")


def test_all_has_to_be_hit_by_all() -> None:
    killed = Counter(dict.fromkeys((*matrix.KINDS, "wiped"), 1))
    hit = {what: Counter(matrix.KINDS) for what in matrix.ACTIVITIES}
    matrix.assert_hit(hit, killed)
    with pytest.raises(AssertionError):
        matrix.assert_hit(hit, killed - Counter(["metadata"]))
    for what in matrix.ACTIVITIES:
        with pytest.raises(AssertionError):
            matrix.assert_hit({**hit, what: hit[what] - Counter(["replicator"])}, killed)
    with pytest.raises(AssertionError):
        matrix.assert_hit({**hit, COPYING: hit[COPYING] - Counter(["mover"])}, killed)
