"""`bench.scale`: the model against what is known, curves as files, and a run of its smallest parts."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.scale import page, run
from bench.scale.curves import Curves, Operation, Point, Round, read_curves
from bench.scale.model import CONSTANT, Shape, Term, fit, logarithm, neighbours, variable
from bench.scale.predictions import AMOUNTS, FIRST, NOTHING, OPEN, SHAPES, fits
from swiftlet.bench.errors import BenchError

A, B = variable("a"), variable("b")


def test_coefficients_that_samples_were_made_of_are_found() -> None:
    wheres = [{"a": 2.0**power, "b": 10.0 ** (power % 4)} for power in range(1, 12)]
    samples = [(at, 5 + 3e-6 * at["a"] + 7000 * at["b"]) for at in wheres]
    found = fit([CONSTANT, A, B], samples)
    assert found.coefficients == pytest.approx((5, 3e-6, 7000), rel=1e-3)
    assert found.worst_error == pytest.approx(0, abs=1e-6)
    assert found.beyond_error == pytest.approx(0, abs=1e-6)
    assert found.at({"a": 1e12, "b": 0}) == pytest.approx(5 + 3e6, rel=1e-3)


def test_a_term_never_counts_below_0() -> None:
    samples = [({"a": float(n), "b": 1.0 / n}, 10 - 0.5 * n) for n in range(1, 10)]
    found = fit([CONSTANT, A, B], samples)
    assert min(found.coefficients) >= 0
    assert found.coefficients[1] == 0


def test_terms_that_cannot_be_told_apart_are_counted_once() -> None:
    found = fit([A, B], [({"a": n, "b": 2 * n}, 6.0 * n) for n in (1.0, 2.0, 3.0)])
    assert found.at({"a": 10, "b": 20}) == pytest.approx(60)


def test_errors_are_shares_of_what_was_measured() -> None:
    found = fit([A], [({"a": 1.0}, 1.1), ({"a": 1.0}, 0.9), ({"a": 1000.0}, 1100), ({"a": 1000.0}, 900)])
    assert found.mean_error == pytest.approx(0.1, abs=0.01)
    assert 0.1 < found.worst_error < 0.12


def test_what_a_formula_lacks_shows_beyond_its_points() -> None:
    """Linear where the truth is square: near the points it was fitted to, and far from the next one."""
    found = fit([CONSTANT, A], [({"a": float(n)}, float(n * n)) for n in (8, 9, 10, 11, 100)])
    assert found.beyond_error is not None
    assert found.beyond_error < -0.5


def test_each_variable_is_left_out_where_it_is_largest() -> None:
    """What is right for one variable says nothing for another, and the largest amount may be an outlier anywhere."""
    wheres = [{"a": float(a), "b": float(b)} for a, b in ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (1, 50))]
    found = fit([CONSTANT, A, B], [(at, 1 + at["a"] + at["b"] ** 2) for at in wheres])
    assert found.beyond_error is not None
    assert found.beyond_error < -0.5
    outlier = [({"a": float(2**n)}, 1000.0 if n == 0 else 2.0**n) for n in range(8)]
    found = fit([A], outlier)
    assert found.beyond_error == pytest.approx(0, abs=0.2)
    assert fit([CONSTANT], [({}, 1.0), ({}, 3.0)]).beyond_error is None


@pytest.mark.parametrize("samples", [[], [({"a": 1.0}, 1.0)], [({"a": 1.0}, 0.0), ({"a": 2.0}, 1.0)]])
def test_samples_that_say_too_little_are_refused(samples: list[tuple[dict[str, float], float]]) -> None:
    with pytest.raises(ValueError, match=r"too few|above 0"):
        fit([CONSTANT, A], samples)


def test_formulas_are_told_without_what_counts_nothing() -> None:
    found = fit([CONSTANT, logarithm("a"), B], [({"a": 2.0**n, "b": 0.0}, 3.0 * n) for n in range(1, 6)])
    assert found.formula("{:.0f}".format) == "3 x log2(a)"
    assert fit([Term("nothing", lambda at: 0.0)], [({}, 1.0)]).formula(str) == "0.0"


def test_neighbours_are_those_that_random_partitions_give() -> None:
    chance, devices, partitions = random.Random(1), 200, 150
    counts = []
    for _ in range(200):
        shared = {other for _ in range(partitions) for other in chance.sample(range(devices - 1), 2)}
        counts.append(len(shared))
    assert neighbours(devices, partitions, 3) == pytest.approx(sum(counts) / len(counts), rel=0.01)
    assert neighbours(5, 1e6, 3) == pytest.approx(4)
    assert neighbours(1, 1e6, 1) == 0
    assert neighbours(2, 1e6, 2) == 1


def test_a_shape_is_told_by_device() -> None:
    at = Shape(nodes=1000, devices_per_node=12, objects=1e12, part_power=22, containers=1e8).at()
    assert at["partitions"] == pytest.approx(3 * 2**22 / 12_000)
    assert at["objects"] == pytest.approx(2.5e8)
    assert at["containers"] == pytest.approx(25_000)
    assert 1900 < at["neighbours"] < 2 * at["partitions"]


def made_up() -> Curves:
    """Curves by formulas that the model has."""
    operation = Operation(operation="put", per_second=1, p50_s=0.001, p99_s=0.01, cpu_s=2e-5)
    points = []
    for devices, power in ((4, 14), (8, 14), (16, 14), (64, 14), (5, 10), (5, 20)):
        at = {
            "devices": float(devices),
            "part_power": float(power),
            "assignments": 3.0 * 2**power,
            "partitions": 3 * 2**power / devices,
            "neighbours": devices - 1.0,
        }
        rounds = tuple(
            Round(
                kind=kind,
                seconds=9.0,
                cpu_s=0.01 + 0.001 * at["neighbours"] + 4e-6 * at["partitions"],
                bytes=63 * at["neighbours"],
                messages=at["neighbours"],
                memory_bytes=0,
            )
            for kind in (NOTHING, OPEN)
        )
        amounts = {
            "ring_file_bytes": at["assignments"] * (0.1 + 0.2 * math.log2(devices / 3)),
            "ring_memory_bytes": 2 * at["assignments"],
            "ring_build_cpu_s": 1.0,
            "ring_read_cpu_s": 1e-8 * at["assignments"],
        }
        points.append(Point(at=at, rounds=rounds, amounts=amounts))
    objects = [
        Point(
            at={"objects": count},
            operations=(operation, operation.model_copy(update={"operation": "get"})),
            amounts={"store_resident_bytes": 66 * count, "store_open_cpu_s": 3e-7 * count},
        )
        for count in (1e4, 1e5, 1e6)
    ]
    first = Round(kind=FIRST, seconds=9.0, cpu_s=0, bytes=0, messages=0, memory_bytes=0)
    containers = [
        Point(
            at={"containers": count},
            rounds=(
                first.model_copy(update={"cpu_s": 0.1 + 1e-3 * count}),
                first.model_copy(update={"cpu_s": 0.1, "kind": NOTHING}),
            ),
        )
        for count in (1, 1e3, 1e5)
    ]
    curves = Curves(machine={}, parts={})
    machine = {"began": "now", "processors": 2, "load_average": 0.1, "swiftlet": "0"}
    powers = [point for point in points if point.at["devices"] == 5]
    parts = {"devices": points[:4], "powers": powers, "objects": objects, "containers": containers}
    for name, part in {**parts, "check": points[-1:]}.items():
        curves = curves.with_part(name, part, machine)
    return curves


def test_the_model_says_of_made_up_curves_what_they_were_made_of() -> None:
    known = {amount.name: fitted for amount, fitted, _ in fits(made_up())}
    assert known.keys() == {amount.name for amount in AMOUNTS}
    at = SHAPES[-1].at()
    messages, seconds = known["round of a device, messages"], known["round of a device, processor"]
    assert messages is not None
    assert messages.at(at) == pytest.approx(at["neighbours"], rel=1e-3)
    assert seconds is not None
    assert seconds.at(at) == pytest.approx(0.01 + 0.001 * at["neighbours"] + 4e-6 * at["partitions"], rel=1e-2)
    ring, first = known["ring, file"], known["first round of databases, processor"]
    assert ring is not None
    assert ring.at(at) == pytest.approx(at["assignments"] * (0.1 + 0.2 * math.log2(4000)), rel=1e-3)
    assert first is not None
    assert first.at(at) == pytest.approx(25.1, rel=1e-3)
    memory = known["a device's index, memory"]
    assert memory is not None
    assert memory.at(at) == pytest.approx(66 * 2.5e8, rel=1e-3)


def test_the_page_says_up_to_which_size_rounds_were_measured(tmp_path: Path) -> None:
    curves = made_up()
    points = curves.parts["devices"]
    larger = points[-1].model_copy(update={"at": {**points[-1].at, "devices": 8192.0}, "rounds": ()})
    page.write(curves.with_part("devices", [*points, larger], curves.machine["devices"]), tmp_path)
    ends = max(point.at["devices"] for point in points if point.rounds)
    assert f"- devices: rounds with more than {ends:,.0f}, up to 8,192\n" in (tmp_path / "RESULTS.md").read_text()


def test_the_page_has_every_part_and_says_what_was_not_measured(tmp_path: Path) -> None:
    (tmp_path / "of-a-part-that-is-gone.svg").write_text("")
    curves = made_up()
    page.write(curves, tmp_path)
    written = (tmp_path / "RESULTS.md").read_text()
    for text in ("## Devices", "## Part power", "Nothing in this chapter was measured", "1,000 nodes of 12 devices"):
        assert text in written
    assert "no formula was fitted to" in written
    pictures = sorted(tmp_path.glob("*.svg"))
    assert pictures
    for picture in pictures:
        assert f"({picture.name})" in written
        assert ElementTree.fromstring(picture.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    assert not (tmp_path / "of-a-part-that-is-gone.svg").exists()
    file = tmp_path / "results.json"
    file.write_text(page.as_json(curves))
    assert read_curves(file) == curves
    assert read_curves(tmp_path / "none.json").parts == {}
    file.write_text('{"version": 7, "machine": {}, "parts": {}}')
    with pytest.raises(BenchError, match="has version 7"):
        read_curves(file)
    file.write_text("{}")
    with pytest.raises(BenchError, match="has no curves"):
        read_curves(file)


def test_the_smallest_parts_are_measured_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ["--devices", "1", "3", "--powers", "2", "--containers", "1", "3", "--ring-devices", "8"]
    arguments = ["run", "--out", str(tmp_path), "--directory", str(tmp_path / "stores"), *sizes, "--only"]
    monkeypatch.setattr("bench.scale.run.PART_POWER", 4)
    monkeypatch.setattr("bench.scale.rounds.LACKED", 3)
    for parts in (["devices", "rings"], ["powers", "containers"]):
        monkeypatch.setattr(sys, "argv", [*arguments, *parts])
        run.main()
    found = read_curves(tmp_path / "results.json").parts
    alone, three = found["devices"]
    assert not alone.rounds
    assert three.at["neighbours"] == 2
    assert [one.kind for one in three.rounds] == [NOTHING, OPEN, "3 objects lacking"]
    assert all(one.bytes > 0 and one.messages > 0 and one.seconds > 0 for one in three.rounds)
    assert found["powers"][0].at["part_power"] == 2
    assert [point.at["containers"] for point in found["containers"]] == [1, 3]
    assert [one.operation for one in found["containers"][1].operations] == ["totals", "page", "row"]
    assert found["containers"][1].rounds[-1].kind == "3 rows lacking"
    assert "## Containers on a device" in (tmp_path / "RESULTS.md").read_text()
    assert not list((tmp_path / "stores").iterdir())
