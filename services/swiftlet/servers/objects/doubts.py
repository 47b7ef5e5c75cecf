"""What a device may have missed: applies verdicts on its partitions, and reports its doubts.

`swiftlet_native.Doubts` has the state, for the native server and the one over HTTP alike. See
`docs/design/2026-11-23-unproved-devices.md`.
"""

from __future__ import annotations

from swiftlet_native import Doubts

from swiftlet.boundaries.objects import Verdict


def judge(doubts: Doubts, verdict: Verdict) -> None:
    """Apply a verdict on a device's partitions; a partition that it both proves and doubts stays in doubt."""
    if verdict.proved:
        doubts.prove(verdict.epoch, list(verdict.proved))
    if verdict.whole:
        doubts.prove_all(verdict.epoch)
    if verdict.doubted:
        doubts.doubt(list(verdict.doubted))


def doubt_fields(doubts: Doubts) -> dict[str, object]:
    """Return the fields of the status report about what a device may have missed."""
    pending, (whole, proved, single) = doubts.pending(), doubts.counts()
    return {
        "unproved": "device" if whole else "partitions" if single else None,
        "unprovedSeconds": None if pending is None else round(pending[1], 3),
        "partitionsProved": proved if whole else None,
        "partitionsDoubted": single,
    }
