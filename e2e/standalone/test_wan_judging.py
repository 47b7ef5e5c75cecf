"""The judge of clients in several regions: what it calls wrong, and what it lets pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.wan.judging import Done, Judge, lacking_bytes, summary
from e2e.standalone.model_history import Version

PUT = Done("il", "local", "il-0-1", "PUT", 1.0, 2.0, 201, "a", 5, "")
SECOND = replace(PUT, begun=3.0, ended=4.0, etag="b", size=6)
GET = replace(PUT, method="GET", begun=5.0, ended=6.0, status=200, etag="b", size=6)
ABSENT = replace(GET, status=404, etag="", size=0, reason="there is no such object")
DELETE = replace(PUT, method="DELETE", begun=7.0, ended=8.0, status=204, etag="", size=0)


def test_who_writes_an_object_alone_reads_what_was_acknowledged() -> None:
    assert Judge([GET, PUT, SECOND]).wrong_answers() == []
    stale = replace(GET, etag="a", size=5)
    for answer in (stale, ABSENT):
        [wrong] = Judge([PUT, SECOND, answer]).wrong_answers()
        assert "allowed are" in wrong


def test_a_write_that_failed_may_count_or_not() -> None:
    failed = replace(SECOND, status=503, reason="too few replicas")
    for answer in (GET, replace(GET, etag="a", size=5)):
        assert Judge([PUT, failed, answer]).wrong_answers() == []
    assert len(Judge([PUT, failed, ABSENT]).wrong_answers()) == 1


def test_other_regions_may_be_behind_but_invent_nothing() -> None:
    behind = [replace(one, region="ga") for one in (replace(GET, etag="a", size=5), ABSENT)]
    assert Judge([PUT, SECOND, *behind]).wrong_answers() == []
    invented = replace(GET, region="ga", etag="c")
    assert len(Judge([PUT, SECOND, invented]).wrong_answers()) == 1


def test_bytes_without_their_etag_are_wrong_wherever_they_are_read() -> None:
    [wrong] = Judge([PUT, SECOND, replace(GET, region="ga", reason="the bytes do not have the ETag")]).wrong_answers()
    assert "do not have the ETag" in wrong


@pytest.mark.parametrize(("shown", "is_wrong"), [(None, False), (Version("b", 6, "", ""), True)])
def test_at_rest_nothing_that_was_deleted_comes_back(shown: Version | None, is_wrong: bool) -> None:
    judge = Judge([PUT, SECOND, DELETE])
    assert judge.names("local") == ["il-0-1"]
    assert bool(judge.wrong_ends("local", {"il-0-1": shown}, 9.0)) == is_wrong
    assert judge.wrong_ends("majority", {}, 9.0) == []


def test_of_clients_of_all_regions_the_last_one_counts() -> None:
    shared = [replace(PUT, name="shared-1"), replace(SECOND, name="shared-1", region="ga")]
    judge = Judge(shared)
    assert judge.wrong_ends("local", {"shared-1": Version("b", 6, "", "")}, 9.0) == []
    assert len(judge.wrong_ends("local", {"shared-1": Version("a", 5, "", "")}, 9.0)) == 1
    assert len(judge.wrong_ends("local", {}, 9.0)) == 1


def test_a_summary_counts_refusals_as_not_served() -> None:
    refused = replace(SECOND, status=503, ended=3.5)
    found = summary([PUT, refused, GET, replace(PUT, region="ga")], ["il"], "local", True)
    assert (found.count, found.served, found.median_ms, found.worst_ms) == (2, 0.5, 750.0, 1000.0)
    assert str(summary([], ["il"], "local", True)) == "none"


def test_what_a_region_lacks_is_told_by_timestamps() -> None:
    before: dict[str, dict[str, tuple[str, int] | None]] = {
        "il": {"a": ("1", 10), "b": None},
        "ga": {"a": ("2", 20), "b": ("1", 7)},
    }
    assert lacking_bytes(before, {"a": ("2", 20), "b": ("1", 7)}) == 20 + 7
