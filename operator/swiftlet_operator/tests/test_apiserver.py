"""Where the API server's binary is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftlet_operator.tests.apiserver import hyperkube, kube_bin


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
