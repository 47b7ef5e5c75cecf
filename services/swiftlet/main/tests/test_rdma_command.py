"""`swiftlet rdma check`, as people see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swiftlet.main.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def check(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    """The exit code, and what is said by its first word."""
    code = cli.run(cli.swiftlet, ["rdma", "check", "--pool-bytes", str(16 << 20)])
    return code, dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())


def test_a_build_without_rdma(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("swiftlet_native.rdma_version", lambda: None)
    code, said = check(capsys)
    assert code == 1
    assert said["built"] == "without RDMA"
    assert said["result"].startswith("no RDMA: swiftlet_native was built without RDMA")


def test_a_device_that_can_not_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError(12, "the pool can't be registered")

    (tmp_path / "sys" / "mlx5_0" / "ports" / "1").mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "uverbs0").touch()
    monkeypatch.setattr("swiftlet_native.rdma_version", lambda: "1.22.0")
    monkeypatch.setattr("swiftlet_native.TransportNode", refuses)
    monkeypatch.setattr("swiftlet.transport.rdma.look.__defaults__", (tmp_path / "sys", tmp_path / "dev"))
    code, said = check(capsys)
    assert code == 1
    assert said["built"] == "with UCX 1.22.0"
    assert said["device"] == "mlx5_0:1 state unknown"
    assert said["open"] == "uverbs0 in /dev/infiniband"
    assert said["result"] == "no RDMA: the pool can't be registered"
