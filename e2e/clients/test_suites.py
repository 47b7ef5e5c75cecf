"""The test suites of other projects, against a store with two processes of the proxy.

Every test passes, but for those that `deviations.yaml` names with a reason, and those do not pass.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from e2e.clients import suites
from e2e.clients.outcomes import Deviation, Outcome, Result, compare, count, parse_deviations
from e2e.standalone.cluster import Cluster, start_cluster
from swiftlet.auth.users import hash_secret

DEVIATIONS = parse_deviations(yaml.safe_load(Path(__file__).with_name("deviations.yaml").read_text()))
SUITE_TIMEOUT_S = 600
VERSIONS = ("1", "2", "3")
SETTINGS = {"SWIFTLET_VERSIONING__AGREEMENT_S": "0.1"}
"""Swift's own tests change how containers keep versions some hundred times."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * SUITE_TIMEOUT_S)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A store that knows the suites' users from its start."""
    data = tmp_path_factory.mktemp("suites")
    secret = hash_secret(suites.KEY)
    users = [
        {"account": login.account, "user": login.user, "roles": list(login.roles), "secret_hash": secret}
        for login in suites.all_logins()
    ]
    (data / "etc").mkdir()
    (data / "etc" / "users.yaml").write_text(yaml.safe_dump(users))
    running = start_cluster(data, "--workers", "2", "--key", suites.KEY, settings=SETTINGS)
    yield running
    assert running.stop() == 0
    shutil.rmtree(data)


Judge = Callable[..., None]


@pytest.fixture
def judge(capsys: pytest.CaptureFixture[str]) -> Judge:
    """Fails with every test that did not end as expected; prints the numbers."""

    def check(suite: str, outcomes: Mapping[str, Outcome], *, at_least: int, version: str = "") -> None:
        run = f"{suite}, version {version}" if version else suite
        deviations: list[Deviation] = [one for name in dict.fromkeys([run, suite]) for one in DEVIATIONS.get(name, [])]
        numbers = ", ".join(f"{count(outcomes, result)} {result}" for result in Result)
        with capsys.disabled():
            print(f"\n{run}: {len(outcomes)} tests, {numbers}")
        wrong = compare(outcomes, deviations, at_least)
        assert not wrong, f"{run}: {len(wrong)} not as deviations.yaml has it:\n" + "\n".join(wrong)

    return check


def test_openstack_swift(store: Cluster, judge: Judge, tmp_path: Path) -> None:
    judge("swift", suites.run_swift(store, tmp_path, SUITE_TIMEOUT_S), at_least=600)


@pytest.mark.parametrize("version", VERSIONS)
def test_python_swiftclient(store: Cluster, judge: Judge, tmp_path: Path, version: str) -> None:
    outcomes = suites.run_swiftclient(store, tmp_path, version, SUITE_TIMEOUT_S)
    judge("python-swiftclient", outcomes, at_least=20, version=version)


def test_openstacksdk(store: Cluster, judge: Judge, tmp_path: Path) -> None:
    judge("openstacksdk", suites.run_openstacksdk(store, tmp_path, SUITE_TIMEOUT_S), at_least=10)


@pytest.mark.parametrize("version", VERSIONS)
def test_ncw_swift(store: Cluster, judge: Judge, tmp_path: Path, version: str) -> None:
    outcomes = suites.run_ncw_swift(store, tmp_path, version, SUITE_TIMEOUT_S)
    judge("ncw/swift", outcomes, at_least=130, version=version)


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_gophercloud(store: Cluster, judge: Judge, tmp_path: Path, version: str) -> None:
    outcomes = suites.run_gophercloud(store, tmp_path, version, SUITE_TIMEOUT_S)
    judge("gophercloud", outcomes, at_least=6, version=version)
