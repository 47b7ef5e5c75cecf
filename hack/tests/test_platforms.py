"""Building for another kind of machine: names, what is asked for before anything is built, and what is built on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE, THERE = ("amd64", "arm64") if os.uname().machine == "x86_64" else ("arm64", "amd64")
WITHIN_S = 60


def run(script: str, *sources: str, project: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    """Bash with the functions of these files below hack/ and then `script`."""
    read = "\n".join(f"source hack/{name}" for name in ("lib.sh", *sources))
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{read}\n{script}"],
        cwd=project,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("platform", "machine"), [("", HERE), ("linux/amd64", "amd64"), ("linux/arm64", "arm64")], ids=str
)
def test_a_platform_is_a_machine(platform: str, machine: str) -> None:
    assert run(f"machine_of '{platform}'", "platforms.sh").stdout == f"{machine}\n"


def test_another_platform_is_refused_with_those_that_there_are() -> None:
    done = run("machine_of linux/s390x", "platforms.sh")
    assert done.returncode == 1
    assert "images are not made for linux/s390x" in done.stderr
    assert "linux/amd64 and linux/arm64" in done.stderr


def test_this_machine_needs_nothing_more() -> None:
    lacking = "compiles_for() { return 1; }; runs_programs_of() { return 1; }"
    assert run(f"{lacking}; require_machine {HERE}", "platforms.sh").returncode == 0


@pytest.mark.parametrize(
    ("lacking", "said"),
    [("compiles_for", "Rust does not compile for"), ("runs_programs_of", "the kernel does not run programs for")],
)
def test_what_another_machine_lacks_is_said_with_what_gets_it_ready(lacking: str, said: str) -> None:
    script = (
        f"compiles_for() {{ :; }}; runs_programs_of() {{ :; }}; {lacking}() {{ return 1; }}; require_machine {THERE}"
    )
    done = run(script, "platforms.sh")
    assert done.returncode == 1
    assert f"{said} {THERE}" in done.stderr
    assert f"hack/foreign {THERE}" in done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The scripts in a project of their own, with a maturin that writes a wheel for the target that it is given."""
    (tmp_path / "hack").mkdir()
    for name in ("lib.sh", "platforms.sh"):
        shutil.copyfile(ROOT / "hack" / name, tmp_path / "hack" / name)
    maturin = tmp_path / ".venv" / "bin" / "maturin"
    maturin.parent.mkdir(parents=True)
    maturin.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != --target ]; do shift; done\n'
        'env | grep "^CARGO_TARGET_.*_LINKER="\n'
        "mkdir -p native/target/wheels\n"
        'echo new > "native/target/wheels/native-1-manylinux_2_34_${2%%-*}.whl"\n',
        "utf-8",
    )
    maturin.chmod(0o755)
    return tmp_path


def test_wheels_for_several_machines_lie_side_by_side_one_for_each(project: Path) -> None:
    wheels = project / "native" / "target" / "wheels"
    wheels.mkdir(parents=True)
    (wheels / "native-0-manylinux_2_34_aarch64.whl").write_text("old", "utf-8")
    (wheels / "native-0-manylinux_2_34_x86_64.whl").write_text("old", "utf-8")
    done = run("make_wheel arm64", "platforms.sh", project=project)
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_text("utf-8").strip() for path in wheels.iterdir()} == {
        "native-0-manylinux_2_34_x86_64.whl": "old",
        "native-1-manylinux_2_34_aarch64.whl": "new",
    }


def test_only_for_another_machine_a_compiler_is_named(project: Path) -> None:
    for machine in (HERE, THERE):
        done = run(f"make_wheel {machine}", "platforms.sh", project=project)
        assert done.returncode == 0, done.stderr
    name = "aarch64" if THERE == "arm64" else "x86_64"
    named = f"CARGO_TARGET_{name.upper()}_UNKNOWN_LINUX_GNU_LINKER={name}-linux-gnu-gcc\n"
    assert (project / "build" / f"native-{THERE}.log").read_text("utf-8") == named
    assert (project / "build" / f"native-{HERE}.log").read_text("utf-8") == ""


def test_a_native_package_that_does_not_build_is_told_with_its_log(project: Path) -> None:
    (project / ".venv" / "bin" / "maturin").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    done = run("make_wheel arm64", "platforms.sh", project=project)
    assert done.returncode == 1
    assert "see build/native-arm64.log" in done.stderr


BUILDAH = """
    buildah() { [[ $1 != inspect ]] || [[ " ${HAS:-} " == *" $4 "* ]]; }
    make_python_root() { echo "root here" >&3; }
    make_python_image() { echo "image here"; }
    make_foreign_python_root() { echo "root $1" >&3; }
    commit_python() { echo "image $3 as $2"; }
"""


def base(machine: str, cache: Path, **environ: str) -> list[str]:
    """What `make_base` does, in order, and the image that it comes to."""
    script = f'{BUILDAH}\n mkdir -p $cache; exec 3>&1; make_base {machine}; echo "$base"'
    sources = ("cluster.d/settings.sh", "cluster.d/images.sh")
    done = run(script, *sources, project=ROOT, **({"SWIFTLET_KUBE_CACHE": str(cache)} | environ))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class TestBase:
    made = f"swiftlet.local/python:3.11-{THERE}"

    def test_one_for_another_machine_is_made_once(self, tmp_path: Path) -> None:
        assert base(THERE, tmp_path) == [f"root {THERE}", f"image {THERE} as {self.made}", self.made]
        assert base(THERE, tmp_path, HAS=self.made) == [self.made]

    def test_one_that_is_named_is_taken(self, tmp_path: Path) -> None:
        named = {f"PYTHON_IMAGE_{THERE}": "registry.example.org/python:3.11"}
        assert base(THERE, tmp_path, **named) == ["registry.example.org/python:3.11"]
        assert base(HERE, tmp_path, PYTHON_IMAGE="registry.example.org/python:3.11") == [
            "registry.example.org/python:3.11"
        ]

    def test_one_for_this_machine_is_made_unless_buildah_has_it(self, tmp_path: Path) -> None:
        usual = "docker.io/library/python:3.11-slim"
        assert base(HERE, tmp_path) == ["root here", "image here", usual]
        assert base(HERE, tmp_path, HAS=usual) == [usual]


def test_an_image_with_rdma_is_refused_for_another_machine(tmp_path: Path) -> None:
    script = "make_wheel() { echo BEGUN; }; build_image some"
    environ = {"SWIFTLET_KUBE_CACHE": str(tmp_path), "RDMA": "1", "PLATFORM": f"linux/{THERE}"}
    done = run(script, "cluster.d/settings.sh", "cluster.d/images.sh", project=ROOT, **environ)
    assert done.returncode == 1
    assert "an image with RDMA is built on a machine of its own platform" in done.stderr
    assert "BEGUN" not in done.stdout
