"""`hack/cluster setup`: what it looks at before it begins, and what it leaves when it ends too early."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "hack" / "cluster.d" / "kubernetes"
FILES = ("lib.sh", *(f"cluster.d/{name}.sh" for name in ("settings", "images", "preflight", "progress", "setup")))
WITHIN_S = 60
VERSIONS = [line for line in (KUBERNETES / "versions").read_text().splitlines() if not line.startswith("#")]


def started(cache: Path, script: str, **environ: str) -> subprocess.Popen[str]:
    """Bash with all functions of the set-up and then `script`."""
    for name in ("bin", "images", "logs"):
        (cache / name).mkdir(parents=True)
    sources = "\n".join(f"source hack/{name}" for name in FILES)
    return subprocess.Popen(
        # Where the tests run in the background, interrupts are ignored from there on.
        ["env", "--default-signal=INT", "bash", "-c", f"set -euo pipefail\n{sources}\n{script}"],
        cwd=ROOT,
        env=os.environ | {"SWIFTLET_KUBE_CACHE": str(cache), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status, and what was written."""
    wrote, _ = process.communicate(timeout=WITHIN_S)
    return process.returncode, wrote


def test_everything_that_is_in_the_way_is_told_before_anything_begins(tmp_path: Path) -> None:
    poor = """
        df() { printf 'Avail\\n1000\\n'; }
        awk() { echo 1000; }
        unshare() { return 1; }
        has_control_groups() { return 1; }
        go() { [[ $1 != env ]] || echo go1.20; }
        go_environment() { return 1; }
        make_kubernetes() { echo BEGUN; }
        check_before kubernetes
        make_kubernetes
    """
    code, wrote = ended(started(tmp_path, poor))
    assert code == 1
    assert "BEGUN" not in wrote
    for problem in (
        "MiB free",
        "1000 MiB of memory",
        "control groups",
        "namespaces",
        "overlay",
        "go is 1.20",
        "module proxy",
    ):
        assert problem in wrote
    assert wrote.count("error:") == wrote.count("  fix:") == 9
    assert "nothing was begun" in wrote


def test_a_step_that_needs_no_registry_asks_none(tmp_path: Path) -> None:
    offline = """
        check_room() { :; }
        check_rights() { :; }
        go_environment() { echo ASKED; }
        timeout() { echo ASKED; }
        check_before pods
    """
    assert ended(started(tmp_path, offline)) == (0, "")


def test_what_fails_shows_the_end_of_its_log_and_what_to_do(tmp_path: Path) -> None:
    failing = """
        make_broken() { seq 100; touch "$programs/broken.part"; echo 'the compiler says no'; false; echo NEVER; }
        with_progress 'a broken thing' 10 broken
    """
    code, wrote = ended(started(tmp_path, failing))
    assert code == 1
    assert "the compiler says no" in wrote
    assert "NEVER" not in wrote
    assert f"see {tmp_path}/logs/broken.log" in wrote
    assert not list(tmp_path.glob("*/*.part"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_interrupted_leaves_no_process_and_nothing_half_made(tmp_path: Path, number: int) -> None:
    endless = """
        make_endless() { touch "$programs/endless.part"; echo $BASHPID >"$logs/pid"; while sleep 0.1; do :; done; }
        with_progress 'an endless thing' 10 endless
    """
    process = started(tmp_path, endless)
    deadline = time.monotonic() + WITHIN_S
    while not (tmp_path / "logs" / "pid").exists() or not (tmp_path / "logs" / "pid").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    code, wrote = ended(process)
    assert code == 130
    assert "interrupted" in wrote
    assert not (tmp_path / "bin" / "endless.part").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "logs" / "pid").read_text()), 0)


def test_how_far_it_is_is_told_now_and_then(tmp_path: Path) -> None:
    slow = """
        is_working() { [[ $((rounds += 1)) -lt 3 ]]; }
        rounds=0
        make_slow() { echo made; }
        with_progress '[1/2] a slow thing' 600 slow
    """
    code, wrote = ended(started(tmp_path, slow))
    assert code == 0
    assert len(re.findall(r"\[1/2\] a slow thing: \d+ s of about 10 min", wrote)) == 2
    assert wrote.splitlines()[-1].startswith("cluster: [1/2] a slow thing: done in ")
    assert (tmp_path / "logs" / "slow.log").read_text() == "made\n"


@pytest.mark.parametrize(
    ("chosen", "version"), [("", VERSIONS[0]), *((one.rpartition(".")[0], one) for one in VERSIONS)]
)
def test_the_version_that_is_asked_for_is_taken(tmp_path: Path, chosen: str, version: str) -> None:
    assert ended(started(tmp_path, 'echo "$kubernetes_version"', KUBE=chosen)) == (0, f"{version}\n")


def test_a_version_that_is_not_offered_is_refused(tmp_path: Path) -> None:
    assert ended(started(tmp_path, 'echo "$kubernetes_version"', KUBE="1.3")) == (0, "\n")
    process = subprocess.run(
        ["hack/cluster", "kind"],
        cwd=ROOT,
        env=os.environ | {"KUBE": "1.3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert f"not among the versions that the cluster can be of: {' '.join(VERSIONS)}" in process.stderr


def test_the_cluster_that_is_there_chooses_when_nobody_else_does(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "kubernetes").write_text(f"{VERSIONS[1]}\n")
    assert ended(started(tmp_path, 'echo "$kubernetes_version"', KUBE="")) == (0, f"{VERSIONS[1]}\n")


@pytest.mark.parametrize("version", VERSIONS)
def test_modules_are_of_the_version_that_is_offered(version: str) -> None:
    modules = (KUBERNETES / f"{version.rpartition('.')[0]}.mod").read_text()
    assert f"k8s.io/kubernetes v{version}\n" in modules
    staged = set(re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ v(\S+)$", modules, re.MULTILINE))
    assert staged == {f"0{version.removeprefix('1')}"}


def test_clusters_that_run_side_by_side_have_nothing_in_common(tmp_path: Path) -> None:
    names = ("prefix", "state", "wire", "pods", "services_cidr", "control_plane_ip", "host_ip", "api_ip", "dns_ip")
    said = "\n".join(f'echo "${name}"' for name in names)
    lines = [ended(started(tmp_path / number, said, CLUSTER=number)) for number in "129"]
    assert [code for code, _ in lines] == [0, 0, 0]
    found = [line for _, text in lines for line in text.splitlines()]
    assert len(found) == 27
    assert len(set(found)) == 27
    # What is one cluster's must not be taken for another's by the beginning of its name.
    prefixes = [text.splitlines()[0] for _, text in lines]
    assert not any(one.startswith(f"{other}-") for one in prefixes for other in prefixes)


@pytest.mark.parametrize("number", ["0", "10", "b", ""])
def test_a_cluster_that_can_t_be_is_refused(number: str) -> None:
    process = subprocess.run(
        ["hack/cluster", "kind"],
        cwd=ROOT,
        env=os.environ | {"CLUSTER": number or " "},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert "is not a number from 1 to 9" in process.stderr


def test_the_dns_of_a_cluster_asks_those_of_the_others_for_their_names(tmp_path: Path) -> None:
    render = """
        source hack/cluster.d/machines.sh
        mkdir -p "$state"
        forwarded_names >"$state/forwarded"
        render_manifests
    """
    code, wrote = ended(started(tmp_path, render, CLUSTER="2"))
    assert code == 0
    assert "${" not in wrote
    maps = [one for one in yaml.safe_load_all(wrote) if one and "Corefile" in one.get("data", {})]
    core = maps[0]["data"]["Corefile"]
    assert "kubernetes cluster.local cluster2.test in-addr.arpa" in core
    servers = dict(re.findall(r"^(\S+):53 \{\n.*\n.*\n    forward \. (\S+)\n\}$", core, re.MULTILINE))
    assert len(servers) == 8
    assert servers["cluster1.test"] == "10.97.0.10"
    assert servers["cluster3.test"] == "10.99.0.10"
    assert "cluster2.test" not in servers


def test_a_coredns_that_asks_no_other_servers_is_built_anew(tmp_path: Path) -> None:
    script = """
        program() {
            printf '#!/bin/sh\\necho cache\\necho %s\\n' "$1" >"$programs/coredns"
            chmod +x "$programs/coredns"
        }
        lacks_coredns && echo none
        program errors
        lacks_coredns && echo old
        program forward
        lacks_coredns || echo new
    """
    assert ended(started(tmp_path, script)) == (0, "none\nold\nnew\n")
