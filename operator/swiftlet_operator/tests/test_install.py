"""What replaces a definition, what the guard says, and how long both ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swiftlet.errors import SettingsError
from swiftlet_operator.definitions import INSTALLED_VERSION, read_definitions, wanted
from swiftlet_operator.problems import KubeError, KubeForbidden, KubeInvalid
from swiftlet_operator.retry import until_answered
from swiftlet_operator.tests.conftest import CRDS
from swiftlet_operator.uninstall import Release, refusal

RELEASE = Release("a" * 53, "b" * 63, 1000)


def definition(version: str | None, **annotations: str) -> dict[str, Any]:
    marks = annotations | ({INSTALLED_VERSION: version} if version is not None else {})
    metadata = {"name": "rings.swiftlet.io", "annotations": marks, "resourceVersion": "7"}
    return {"metadata": metadata, "spec": {"group": "swiftlet.io"}}


@pytest.mark.parametrize(
    ("theirs", "ours", "replaced"),
    [
        (None, "0.1.0", True),
        ("by hand", "0.1.0", True),
        ("0.1.0", "0.1.0", True),
        ("0.9.0", "0.10.0", True),
        ("0.10.0", "0.9.0", False),
        ("1.0.0-rc1", "1.0.0", True),
        ("1.0.0", "1.0.0-rc1", False),
        ("9.0.0", "dev", True),
    ],
)
def test_only_a_definition_that_is_known_to_be_newer_stays(theirs: str | None, ours: str, replaced: bool) -> None:
    assert (wanted(definition(theirs), definition(None), ours) is not None) is replaced


def test_marks_of_others_stay_and_those_of_a_release_go() -> None:
    live = definition("0.1.0", **{"meta.helm.sh/release-name": "old", "argocd.argoproj.io/sync-wave": "1"})
    live["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm", "team": "storage"}

    new = wanted(live, definition(None), "0.2.0")

    assert new is not None
    assert new["metadata"]["resourceVersion"] == "7"
    assert new["metadata"]["labels"] == {"team": "storage"}
    assert new["metadata"]["annotations"] == {
        "argocd.argoproj.io/sync-wave": "1",
        "helm.sh/resource-policy": "keep",
        INSTALLED_VERSION: "0.2.0",
    }


def test_only_a_folder_of_our_definitions_is_taken(tmp_path: Path) -> None:
    assert len(read_definitions(CRDS)) == 5
    with pytest.raises(SettingsError, match="has no definitions"):
        read_definitions(tmp_path)
    for text in ("kind: ConfigMap", "[]", "{", "kind: CustomResourceDefinition\nspec: {group: example.org}"):
        (tmp_path / "one.yaml").write_text(text)
        with pytest.raises(SettingsError):
            read_definitions(tmp_path)


def test_the_guard_s_words_fit_into_what_is_kept_of_them() -> None:
    assert refusal([], RELEASE) is None
    names = [f"{'c' * 60}-{number}" for number in range(9)]
    clusters = [{"metadata": {"name": name, "namespace": "d" * 63}, "spec": {}} for name in names]

    said = refusal(clusters, RELEASE)

    assert said is not None
    assert len(said.encode()) < 2048
    assert "9 StorageClusters" in said
    assert "and 4 more" in said
    assert "(deletionPolicy Retain)" in said


async def test_what_may_pass_is_asked_again_and_nothing_else() -> None:
    answers: list[KubeError] = [KubeForbidden("not yet"), KubeInvalid("never")]

    async def ask() -> str:
        if answers:
            raise answers.pop(0)
        return "yes"

    with pytest.raises(KubeInvalid):
        await until_answered(ask, within_s=60.0, pause_s=0.0)
    assert await until_answered(ask, within_s=60.0, pause_s=0.0) == "yes"

    async def never() -> str:
        raise KubeForbidden("not yet")

    with pytest.raises(KubeForbidden):
        await until_answered(never, within_s=0.0, pause_s=1.0)
