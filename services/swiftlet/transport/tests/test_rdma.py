"""When a process has RDMA, and what it says when it has not."""

from __future__ import annotations

from pathlib import Path

import pytest
import swiftlet_native

from swiftlet.errors import SettingsError
from swiftlet.transport.modes import Mode
from swiftlet.transport.rdma import RdmaPort, RdmaState, Surroundings, look, start, why_not

WORKING = Surroundings("1.22.0", (RdmaPort("rxe0", "1", "ACTIVE", "Ethernet"),), ("uverbs0",), None)
LACKING = {
    "built without RDMA": Surroundings(None, WORKING.ports, WORKING.openable, None),
    "no RDMA device": Surroundings("1.22.0", (), (), None),
    "/dev/infiniband": Surroundings("1.22.0", WORKING.ports, (), None),
}


def works(rdma: bool) -> str:
    """A node that has what it is asked for."""
    return "with" if rdma else "without"


def breaks(rdma: bool) -> str:
    """A device that is there and can't be used."""
    if rdma:
        raise OSError(12, "the pool can't be registered")
    return "without"


def test_it_is_used_where_it_works() -> None:
    for mode in ("auto", "required"):
        made, state = start(mode, works, lambda: WORKING)
        assert made == "with"
        assert state.status() == {"mode": mode, "ready": True, "missing": None}


def test_off_looks_at_nothing() -> None:
    def nobody_looks() -> Surroundings:
        raise AssertionError

    assert start("off", works, nobody_looks) == ("without", RdmaState("off", None))


@pytest.mark.parametrize("sign", LACKING)
def test_what_is_missing_is_said(sign: str) -> None:
    made, state = start("auto", works, lambda: LACKING[sign])
    assert made == "without"
    assert not state.status()["ready"]
    assert sign in (state.missing or "")
    with pytest.raises(SettingsError, match=sign):
        start("required", works, lambda: LACKING[sign])


def test_a_device_that_does_not_work() -> None:
    made, state = start("auto", breaks, lambda: WORKING)
    assert (made, state.missing) == ("without", "the pool can't be registered")
    with pytest.raises(SettingsError, match=r"cluster\.rdma is required.*the pool can't be registered"):
        start("required", breaks, lambda: WORKING)


@pytest.mark.parametrize("mode", ["auto", "required", "off"])
def test_what_fails_without_rdma_fails(mode: Mode) -> None:
    def fails(rdma: bool) -> str:
        raise OSError(24, "no descriptor left")

    with pytest.raises((OSError, SettingsError), match="no descriptor left"):
        start(mode, fails, lambda: WORKING)


def test_what_the_kernel_lists(tmp_path: Path) -> None:
    port = tmp_path / "sys" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "link_layer").write_text("Ethernet\n")
    (tmp_path / "sys" / "broken0" / "ports" / "2").mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    for name in ("uverbs0", "rdma_cm"):
        (tmp_path / "dev" / name).touch()
    there = look(tmp_path / "sys", tmp_path / "dev")
    assert [str(port) for port in there.ports] == ["broken0:2 state unknown", "mlx5_0:1 ACTIVE Ethernet"]
    assert there.openable == ("uverbs0",)
    nothing = look(tmp_path / "none", tmp_path / "none")
    assert (nothing.ports, nothing.openable) == ((), ())
    assert why_not(nothing) is not None


@pytest.mark.parametrize("silence_s", [0.5, 61.0, float("nan")])
def test_a_silence_that_no_peer_can_keep_or_no_caller_wait_for(silence_s: float) -> None:
    with pytest.raises(ValueError, match="silence_s is"):
        swiftlet_native.TransportNode("me", "here", [b"key"], pool_bytes=16 << 20, silence_s=silence_s)
