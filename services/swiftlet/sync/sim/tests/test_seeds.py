"""A slice of the seeds that CI runs, every mode, the same history from the same seed, and the command line."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from swiftlet.sync.session.topology import MODES
from swiftlet.sync.sim.cli import main
from swiftlet.sync.sim.run import rounds_needed, run
from swiftlet.sync.sim.shape import shape_of


def test_a_slice_of_the_seeds_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--seeds", "250", "--workers", "2"]) == 0
    said = capsys.readouterr().out
    assert "250 seeds" in said
    assert " 0 broken" in said
    for fault in ("crash", "partition", "slow", "disk_errors", "disk_full", "wipe", "clock", "table", "ring"):
        assert f" {fault}" in said


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_holds(mode: str) -> None:
    for seed in range(10_000, 10_012):
        assert run(seed, mode).broken is None


def test_a_large_world_holds() -> None:
    report = run(1, large=True)
    assert report.broken is None
    assert report.shape.nodes >= 20
    assert report.shape.part_power >= 8


def test_a_seed_is_one_history() -> None:
    one, other = run(77, tracing=True), run(77, tracing=True)
    assert one.trace == other.trace
    assert len(one.trace) > 100
    assert asdict(run(77).counts) == asdict(one.counts)


def test_seeds_are_of_many_shapes() -> None:
    shapes = [shape_of(seed) for seed in range(1500)]
    assert {shape.mode.name for shape in shapes} == set(MODES)
    assert {shape.replicas for shape in shapes} == {2, 3, 4, 5}
    assert min(shape.nodes for shape in shapes) == 4
    assert max(shape.nodes for shape in shapes) > 7
    assert all(shape.nodes > shape.replicas for shape in shapes)
    assert any(shape.away_s[1] > shape.reclaim_age_s for shape in shapes)
    assert any(shape.skew_s >= 120.0 for shape in shapes)


def test_the_promised_rounds() -> None:
    found = {}
    for seed in range(1500):
        shape = shape_of(seed)
        found[shape.mode.name, shape.replicas] = (rounds_needed(shape, False), rounds_needed(shape, True))
    assert [found["lightsync", r] for r in (2, 3, 4, 5)] == [(1, 1), (2, 2), (3, 2), (4, 3)]
    assert [found["batched", r] for r in (2, 3, 4, 5)] == [(1, 1), (1, 1), (2, 2), (2, 2)]


def test_one_seed_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--trace", "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "round in step 1" in said
    assert "client: put" in said


def test_a_broken_seed_shows_its_end_and_how_to_replay_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swiftlet.sync.session.handoff.is_home", lambda *_: True)
    assert main(["--seed", "1", "--seeds", "12", "--workers", "1", "--mode", "batched"]) == 1
    said = capsys.readouterr().out
    seed = said.split("make sim SEED=")[1].split()[0]
    assert f"seed {seed} (batched): device" in said
    assert f"make sim SEED={seed} SIM_ARGS='--trace --mode batched'" in said
    assert "BROKEN: device" in said
    assert "0 broken" not in said
    assert main(["--seed", seed, "--trace", "--mode", "batched"]) == 1


def test_bad_arguments_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seeds", "0"])
    assert "0 is not a number of 1 or more" in capsys.readouterr().err
