"""Runs the test suites of other projects against a store; what each needs was installed by `hack/setup --clients`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from e2e.clients.outcomes import Outcome, of_go, of_junit
from e2e.standalone.cluster import Cluster

HOME = Path(__file__).parents[2] / ".cache" / "suites"
GO_MODULE = Path(__file__).parent / "go"
KEY = "testing"
PROCESSES = 4
"""How many processes of OpenStack Swift's own tests run at the same time: most of their time they wait."""

# OpenStack Swift's own tests, in parts that take about as long; each part has accounts of its own.
SWIFT_PARTS = (
    ("tests.py",),
    ("test_object_versioning.py",),
    ("test_versioned_writes.py", "test_tempurl.py", "test_staticweb.py", "test_domain_remap.py"),
    ("test_symlink.py",),
    ("test_container.py", "test_account.py"),
    ("test_slo.py", "test_dlo.py"),
    ("test_object.py", "test_protocol.py"),
)
ACCESS_TESTS = "test_access_control.py"
"""Swift's own tests of who may do what; they log in by Keystone and name their users themselves."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user of an account, with the roles that it has in the users file."""

    account: str
    user: str
    roles: tuple[str, ...] = ("admin",)


RESELLER = Login("resellers", "tester6", ("admin", "reseller_admin"))
ACCESS = "test"
FOURTH = Login(f"{ACCESS}4", "tester4")


def accounts_of(suite: str) -> tuple[Login, Login, Login]:
    """The users that a suite's tests know: two who own an account each, and a stranger in the first account."""
    return Login(suite, "tester"), Login(f"{suite}2", "tester2"), Login(suite, "tester3", ())


def names_of_accounts() -> list[str]:
    """One name for each run of a suite: no two share an account."""
    parts = [f"swift{number}" for number in range(len(SWIFT_PARTS))]
    clients = [f"{suite}{version}" for suite in ("swiftclient", "ncw", "gophercloud") for version in "123"]
    return [ACCESS, *parts, *clients, "openstacksdk"]


def all_logins() -> list[Login]:
    """Everybody whom the store has to know."""
    return [RESELLER, FOURTH, *(login for name in names_of_accounts() for login in accounts_of(name))]


def auth_url(cluster: Cluster, version: str) -> str:
    """The URL at which clients log in by version 1, 2 or 3 of the authentication protocols."""
    return {"1": cluster.auth_url, "2": f"{cluster.endpoint}/v2.0", "3": f"{cluster.endpoint}/v3"}[version]


def suite_configuration(cluster: Cluster, account: str, version: str) -> str:
    """A `test.conf` as Swift's and python-swiftclient's own tests read it."""
    first, second, third = accounts_of(account)
    values = {
        "auth_uri": auth_url(cluster, version),
        "auth_version": version,
        "account": first.account,
        "username": first.user,
        "password": KEY,
        "account2": second.account,
        "username2": second.user,
        "password2": KEY,
        "username3": third.user,
        "password3": KEY,
        "account6": RESELLER.account,
        "username6": RESELLER.user,
        "password6": KEY,
        "collate": "C",
        "insecure": "no",
    }
    if version == "3":
        fourth = FOURTH if account == ACCESS else first
        values |= {"account4": fourth.account, "username4": fourth.user, "password4": KEY, "domain4": "Default"}
        values |= {f"domain{number}": "Default" for number in ("", 2, 3, 6)}
    return "[func_test]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())


def run_pytest(work: Path, tests: Sequence[str], variables: Mapping[str, str], timeout_s: int) -> dict[str, Outcome]:
    """Run tests that are in Python, in the directory `work` and by the suites' own packages."""
    junit, settings = work / "junit.xml", work / "pytest.ini"
    settings.write_text("[pytest]\njunit_family = xunit1\n")
    options = [
        "-c",
        str(settings),
        "--rootdir",
        str(work),
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "-q",
        "--tb=short",
    ]
    options += ["--timeout", str(timeout_s // 2), f"--junitxml={junit}"]
    command = [str(HOME / "venv" / "bin" / "python"), "-m", "pytest", *options, *tests]
    log = _run(command, work, {**_python_environment(work), **variables}, timeout_s)
    assert junit.exists(), f"no test has run:\n{log[-4000:]}"
    return of_junit(junit.read_text())


def run_swift(cluster: Cluster, work: Path, timeout_s: int) -> dict[str, Outcome]:
    """OpenStack Swift's own functional tests, but for those of its S3 API."""

    folder = HOME / "sources" / "swift"

    def run_part(account: str, version: str, names: Sequence[str]) -> dict[str, Outcome]:
        part = work / account
        part.mkdir()
        configuration = part / "test.conf"
        configuration.write_text(suite_configuration(cluster, account, version))
        tests = [str(folder / "test" / "functional" / name) for name in names]
        variables = {"SWIFT_TEST_CONFIG_FILE": str(configuration), "PYTHONPATH": str(folder)}
        return run_pytest(part, tests, variables, timeout_s)

    runs = [(f"swift{number}", "1", names) for number, names in enumerate(SWIFT_PARTS)]
    runs.append((ACCESS, "3", (ACCESS_TESTS,)))
    files = {path.name for path in (folder / "test" / "functional").glob("test*.py")}
    assert files == {name for _, _, names in runs for name in names}, "this version of Swift has other files of tests"
    with ThreadPoolExecutor(PROCESSES) as pool:
        parts = list(pool.map(lambda run: run_part(*run), runs))
    return {name: outcome for part in parts for name, outcome in part.items()}


def run_swiftclient(cluster: Cluster, work: Path, version: str, timeout_s: int) -> dict[str, Outcome]:
    """python-swiftclient's own functional tests."""
    configuration = work / "test.conf"
    configuration.write_text(suite_configuration(cluster, f"swiftclient{version}", version))
    folder = HOME / "sources" / "python-swiftclient"
    variables = {"SWIFT_TEST_CONFIG_FILE": str(configuration), "PYTHONPATH": str(folder)}
    return run_pytest(work, [str(folder / "test" / "functional")], variables, timeout_s)


def run_openstacksdk(cluster: Cluster, work: Path, timeout_s: int) -> dict[str, Outcome]:
    """openstacksdk's own functional tests of object stores."""
    names = {"OS_CLOUD": "store", "OPENSTACKSDK_DEMO_CLOUD": "store", "OPENSTACKSDK_DEMO_CLOUD_ALT": "store"}
    names |= {"OPENSTACKSDK_OPERATOR_CLOUD": "store", "OPENSTACKSDK_SYSTEM_ADMIN_CLOUD": "store"}
    variables = {**names, "OS_CLIENT_CONFIG_FILE": str(work / "clouds.yaml"), "OS_TEST_TIMEOUT": str(timeout_s // 2)}
    write_clouds(cluster, work / "clouds.yaml", "openstacksdk")
    packages = ["openstack.tests.functional.object_store", "openstack.tests.functional.cloud.test_object_store"]
    return run_pytest(work, ["--pyargs", *packages], variables, timeout_s)


def write_clouds(cluster: Cluster, file: Path, account: str) -> None:
    """A `clouds.yaml` with the store as `store`."""
    login = accounts_of(account)[0]
    file.write_text(f"""\
clouds:
  store:
    auth:
      auth_url: {auth_url(cluster, "3")}
      username: {login.user}
      password: {KEY}
      project_name: {login.account}
      user_domain_name: Default
      project_domain_name: Default
""")


def run_ncw_swift(cluster: Cluster, work: Path, version: str, timeout_s: int) -> dict[str, Outcome]:
    """The own tests of github.com/ncw/swift, a client in Go that rclone uses."""
    login = accounts_of(f"ncw{version}")[0]
    variables = {
        "SWIFT_AUTH_URL": auth_url(cluster, version),
        "SWIFT_API_USER": login.user if version != "1" else f"{login.account}:{login.user}",
        "SWIFT_API_KEY": KEY,
    }
    if version != "1":
        variables |= {"SWIFT_TENANT": login.account, "SWIFT_TENANT_ID": login.account}
    if version == "3":
        variables |= {"SWIFT_API_DOMAIN": "Default", "SWIFT_API_DOMAIN_ID": "default"}
    return run_go(work, GO_MODULE, ["github.com/ncw/swift/v2"], variables, timeout_s)


def run_gophercloud(cluster: Cluster, work: Path, version: str, timeout_s: int) -> dict[str, Outcome]:
    """gophercloud's own acceptance tests of object stores."""
    login = accounts_of(f"gophercloud{version}")[0]
    variables = {
        "OS_AUTH_URL": auth_url(cluster, version),
        "OS_USERNAME": login.user,
        "OS_PASSWORD": KEY,
        "OS_BRANCH": "master",
    }
    if version == "3":
        variables |= {"OS_PROJECT_NAME": login.account, "OS_DOMAIN_NAME": "Default"}
    else:
        variables["OS_PROJECT_ID"] = login.account
    package = "./internal/acceptance/openstack/objectstorage/v1/..."
    return run_go(work, HOME / "sources" / "gophercloud", ["-tags", "acceptance", package], variables, timeout_s)


def run_go(
    work: Path, module: Path, tests: Sequence[str], variables: Mapping[str, str], timeout_s: int
) -> dict[str, Outcome]:
    """Run tests that are in Go, by the modules that were fetched before."""
    assert shutil.which("go"), "go is missing: hack/setup --clients tells how to get it"
    command = ["go", "test", "-count=1", "-json", f"-timeout={timeout_s}s", *tests]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "SWIFT", "ST_"))}
    log = _run(command, module, {**kept, "GOFLAGS": "-mod=readonly", "GOPROXY": "off", **variables}, timeout_s + 60)
    (work / "go.json").write_text(log)
    return of_go(log.splitlines())


def _python_environment(work: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    path = f"{HOME / 'venv' / 'bin'}:{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "HOME": str(work), "PYTHONDONTWRITEBYTECODE": "1"}


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float) -> str:
    """What a program prints; whether it ended well is told by its tests."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    return done.stdout
