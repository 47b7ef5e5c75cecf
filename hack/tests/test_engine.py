"""`make image` builds with the first engine that answers, not with the first one that is installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make_image(folder: Path, answers: dict[str, bool], *settings: str) -> subprocess.CompletedProcess[str]:
    """What `make image` says when these engines are installed."""
    for name in ("docker", "buildah", "podman"):
        program = folder / name
        answer = "exit 0" if answers.get(name) else "exit 1"
        program.write_text(f'#!/bin/sh\n[ "$1" = info ] && {answer}\necho built by {name}\n', "utf-8")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        ["make", "image", *settings], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )


def test_an_engine_that_does_not_answer_is_passed_over(tmp_path: Path) -> None:
    done = make_image(tmp_path, {"docker": False, "buildah": True, "podman": True})
    assert "built by buildah" in done.stdout, done


def test_when_none_answers_each_is_named(tmp_path: Path) -> None:
    done = make_image(tmp_path, {})
    assert done.returncode != 0
    assert "none of docker, buildah, podman answers" in done.stderr


def test_another_platform_is_told_to_those_who_need_to_be_told(tmp_path: Path) -> None:
    platform = "PLATFORM=linux/arm64"
    by_docker = make_image(tmp_path, {"docker": True}, platform).stdout
    assert "--platform linux/arm64" in by_docker
    assert "TARGETPLATFORM" not in by_docker
    by_buildah = make_image(tmp_path, {"buildah": True}, platform).stdout
    assert "--platform linux/arm64" in by_buildah
    assert "--build-arg TARGETPLATFORM=linux/arm64" in by_buildah
    assert "--platform" not in make_image(tmp_path, {"buildah": True}).stdout
