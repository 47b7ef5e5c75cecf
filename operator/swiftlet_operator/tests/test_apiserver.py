"""Where the API server's binary is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftlet_operator.tests.apiserver import ApiServer, hyperkube, kube_bin, kubernetes_version


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/me"}, "/me/.cache/swiftlet/kube/bin"),
        ({"HOME": "/me", "XDG_CACHE_HOME": "/caches"}, "/caches/swiftlet/kube/bin"),
        ({"XDG_CACHE_HOME": "/caches", "SWIFTLET_KUBE_CACHE": "/kube"}, "/kube/bin"),
        ({"SWIFTLET_KUBE_CACHE": "/kube", "SWIFTLET_KUBE_BIN": "/programs"}, "/programs"),
    ],
)
def test_the_nearest_word_counts(environ: dict[str, str], folder: str) -> None:
    assert kube_bin(environ) == Path(folder)


def test_only_a_program_counts(tmp_path: Path) -> None:
    environ = {"SWIFTLET_KUBE_BIN": str(tmp_path)}
    assert hyperkube(environ) is None

    binary = tmp_path / "hyperkube"
    binary.write_text("")
    assert hyperkube(environ) is None

    binary.chmod(0o755)
    assert hyperkube(environ) == binary


def test_a_version_that_was_asked_for_is_taken_and_no_other(tmp_path: Path) -> None:
    environ = {"SWIFTLET_KUBE_BIN": str(tmp_path)}
    (older := tmp_path / "hyperkube").touch(0o755)
    (usual := tmp_path / f"hyperkube-{kubernetes_version({})}").touch(0o755)
    assert hyperkube(environ) == usual
    assert hyperkube(environ | {"KUBE": "1.34"}) is None

    (named := tmp_path / f"hyperkube-{kubernetes_version({'KUBE': '1.34'})}").touch(0o755)
    assert hyperkube(environ | {"KUBE": "1.34"}) == named

    usual.unlink()
    assert hyperkube(environ) == older


def test_a_version_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"KUBE=1\.3 is not among the versions that there are: 1\."):
        kubernetes_version({"KUBE": "1.3"})


@pytest.mark.apiserver
def test_it_is_of_that_version(apiserver: ApiServer) -> None:
    assert apiserver.get("/version").body["gitVersion"] == f"v{kubernetes_version()}"
