"""What `make release` writes: which commits may be released, joined images, the plugin, the bundle, signatures."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tests.conftest import find_helm
from hack.releasing import chart, oci, olm, plugin, provenance
from hack.releasing.signing import Signer
from hack.releasing.version import ROOT, Release, ReleaseError, declared, find_release

RELEASE = Release("0.3.0", "a" * 40, 1_790_000_000)
DIGEST = f"sha256:{'5' * 64}"


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """As much of the project as has versions, in a repository of its own."""
    for name in ("services/swiftlet/__init__.py", "charts/swiftlet/Chart.yaml", "native/Cargo.toml", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "all")
    return tmp_path


def version_of(project: Path) -> str:
    return declared(project)["native/Cargo.toml"]


class TestVersion:
    def test_all_files_declare_the_same_version(self) -> None:
        assert len(set(declared().values())) == 1

    def test_a_tagged_commit_with_a_section_in_the_changelog_is_a_release(self, project: Path) -> None:
        version = version_of(project)
        changelog = project / "CHANGELOG.md"
        changelog.write_text(changelog.read_text("utf-8") + f"\n## [{version}]\n", "utf-8")
        git(project, "commit", "--quiet", "--all", "-m", "release")
        git(project, "tag", f"v{version}")
        assert find_release(project, snapshot=False).version == version

    def test_a_commit_without_tag_is_refused(self, project: Path) -> None:
        with pytest.raises(ReleaseError, match=f"has no tag v{version_of(project)}; .*SNAPSHOT=1"):
            find_release(project, snapshot=False)

    def test_a_version_that_the_changelog_does_not_tell_of_is_refused(self, project: Path) -> None:
        git(project, "tag", f"v{version_of(project)}")
        with pytest.raises(ReleaseError, match=r"CHANGELOG\.md has no section"):
            find_release(project, snapshot=False)

    def test_a_snapshot_names_its_commit(self, project: Path) -> None:
        found = find_release(project, snapshot=True)
        assert found.version == f"{version_of(project)}-dev.g{found.commit[:10]}"
        assert found.is_snapshot

    def test_files_with_different_versions_are_refused_by_name(self, project: Path) -> None:
        path = project / "charts/swiftlet/Chart.yaml"
        path.write_text(path.read_text("utf-8").replace("appVersion: ", "appVersion: 9"), "utf-8")
        with pytest.raises(ReleaseError, match=r"Chart.yaml \(appVersion\): 9"):
            find_release(project, snapshot=True)

    def test_changes_that_are_not_committed_are_refused(self, project: Path) -> None:
        (project / "new").touch()
        with pytest.raises(ReleaseError, match="not committed"):
            find_release(project, snapshot=True)


def put_blob(layout: Path, data: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    path = layout / "blobs" / "sha256" / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def layer(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def image(layout: Path, architecture: str, *layers: dict[str, bytes]) -> oci.Image:
    """An image in a layout, as a builder writes it."""
    config = put_blob(layout, json.dumps({"architecture": architecture, "os": "linux"}).encode())
    parts = [put_blob(layout, layer(files)) for files in layers]
    manifest = put_blob(layout, json.dumps({"schemaVersion": 2, "config": config, "layers": parts}).encode())
    index = {"schemaVersion": 2, "manifests": [{"mediaType": oci.MANIFEST, **manifest}]}
    (layout / "index.json").write_text(json.dumps(index), "utf-8")
    return oci.read_image(layout)


class TestImages:
    def test_one_index_leads_to_the_image_of_each_platform(self, tmp_path: Path) -> None:
        images = [image(tmp_path / name, name, {"a": name.encode()}) for name in ("arm64", "amd64")]
        digest = oci.join(images, tmp_path / "all", "0.3.0", {})
        root = json.loads((tmp_path / "all" / "index.json").read_text("utf-8"))["manifests"][0]
        assert root["digest"] == digest
        assert root["annotations"]["org.opencontainers.image.ref.name"] == "0.3.0"
        index = json.loads(oci.blob(tmp_path / "all", digest).read_bytes())
        assert [one["platform"]["architecture"] for one in index["manifests"]] == ["amd64", "arm64"]
        for one in index["manifests"]:
            manifest = json.loads(oci.blob(tmp_path / "all", one["digest"]).read_bytes())
            for part in (manifest["config"], *manifest["layers"]):
                data = oci.blob(tmp_path / "all", part["digest"]).read_bytes()
                assert f"sha256:{hashlib.sha256(data).hexdigest()}" == part["digest"]

    def test_the_same_images_have_the_same_digest_in_any_order(self, tmp_path: Path) -> None:
        images = [image(tmp_path / name, name, {"a": b""}) for name in ("arm64", "amd64")]
        first = oci.join(images, tmp_path / "one", "1", {})
        assert oci.join(images[::-1], tmp_path / "two", "1", {}) == first

    def test_archives_depend_on_the_files_alone(self, tmp_path: Path) -> None:
        for name, time_s in (("one", 1), ("two", 2)):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "file").write_text("text", "utf-8")
            os.utime(folder / "file", (time_s, time_s))
            oci.archive(folder, tmp_path / f"{name}.tar.gz", RELEASE.time_s)
        assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()

    def test_later_layers_replace_and_remove(self, tmp_path: Path) -> None:
        layers: list[dict[str, bytes]] = [
            {"var/lib/a": b"old", "var/lib/b": b"gone", "var/lib/c/d": b"gone", "usr/x": b"other"},
            {"var/lib/a": b"new", "var/lib/.wh.b": b"", "var/lib/c/.wh..wh..opq": b"", "var/lib/c/e": b"kept"},
        ]
        oci.extract(image(tmp_path / "layout", "amd64", *layers), tmp_path / "root", ("var/lib/",))
        root = tmp_path / "root"
        found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        assert found == {"var/lib/a": b"new", "var/lib/c/e": b"kept"}

    def test_a_layer_that_leads_out_of_the_root_is_refused(self, tmp_path: Path) -> None:
        made = image(tmp_path / "layout", "amd64", {"var/lib/../../../x": b""})
        with pytest.raises(ReleaseError, match="has the path"):
            oci.extract(made, tmp_path / "root", ("var/",))

    def test_a_layout_with_several_images_is_refused(self, tmp_path: Path) -> None:
        image(tmp_path / "layout", "amd64", {})
        path = tmp_path / "layout" / "index.json"
        index = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps({"manifests": index["manifests"] * 2}), "utf-8")
        with pytest.raises(ReleaseError, match="holds 2 manifests"):
            oci.read_image(tmp_path / "layout")


class TestPlugin:
    def test_it_runs_with_what_its_archive_holds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
        monkeypatch.setattr(plugin, "PYTHONS", (python,))
        plugin.fill(tmp_path, f"linux/{machine}")
        oci.archive(tmp_path, tmp_path.with_suffix(".tar.gz"), RELEASE.time_s)
        link = tmp_path / "bin" / "kubectl-swiftlet"
        link.parent.mkdir()
        link.symlink_to(tmp_path / "kubectl-swiftlet")
        # Nothing of this environment: without site, no installed package is found.
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(link), "--version"], capture_output=True, text=True, check=False
        )
        assert done.stdout.startswith("swiftlet "), done.stderr
        asked = [sys.executable, "-I", "-S", str(link), "status"]
        done = subprocess.run(asked, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
        assert "kubectl is not installed" in done.stderr
        imported = "import sys; sys.path[:0] = sys.argv[1:]; import swiftlet.ring.codec"
        imported += "; from swiftlet.advice.costs import shipped; shipped()"
        paths = [str(tmp_path / "lib"), str(tmp_path / "lib" / f"python{python}")]
        subprocess.run([sys.executable, "-I", "-S", "-c", imported, *paths], check=True)

    def test_another_python_is_told_which_ones_will_do(self) -> None:
        launcher = plugin._LAUNCHER.format(pythons=("2.0",))
        done = subprocess.run([sys.executable, "-c", f"__file__ = 'x'\n{launcher}"], capture_output=True, text=True)
        assert done.returncode == 1
        assert "needs Python 2.0, and python3 is" in done.stderr

    def test_its_modules_leave_out_the_operator_and_the_services(self) -> None:
        names = plugin.sources()
        assert {"swiftlet", "swiftlet.ring.codec", "swiftlet_operator.plugin.main"} <= set(names)
        assert not any(
            name.startswith(("swiftlet.api", "swiftlet.servers", "swiftlet_operator.kube")) for name in names
        )

    def test_what_it_depends_on_is_what_it_imports(self) -> None:
        wanted = {line for line in (ROOT / "requirements/plugin.in").read_text().split("\n") if line[:1].isalpha()}
        text = "".join(path.read_text("utf-8") for path in plugin.sources().values())
        known = {line for line in (ROOT / "requirements/operator.in").read_text().split("\n") if line[:1].isalpha()}
        known |= {line for line in (ROOT / "requirements/runtime.in").read_text().split("\n") if line[:1].isalpha()}
        assert wanted == {name for name in known if f"import {name.replace('-', '_')}\n" in text}

    def test_krew_is_told_where_each_archive_is_and_its_digest(self, tmp_path: Path) -> None:
        made = {}
        for platform in plugin.PLATFORMS:
            made[platform] = tmp_path / f"{platform.replace('/', '_')}.tar.gz"
            made[platform].write_text(platform, "utf-8")
        found = yaml.safe_load(plugin.manifest(RELEASE, made, "https://example.org/v0.3.0/"))
        assert found["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
        assert found["spec"]["version"] == "v0.3.0"
        assert len(found["spec"]["platforms"]) == len(plugin.PLATFORMS)
        for one in found["spec"]["platforms"]:
            about = one["selector"]["matchLabels"]
            assert one["uri"] == f"https://example.org/v0.3.0/{about['os']}_{about['arch']}.tar.gz"
            assert one["sha256"] == provenance.digest_of(made[f"{about['os']}/{about['arch']}"])


@pytest.fixture(scope="module")
def helm() -> str:
    found = find_helm()
    if found is None:
        pytest.skip("helm is not installed; `hack/cluster setup` builds it")
    return found


@pytest.fixture(scope="module")
def package(helm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chart.package(helm, RELEASE, "registry.example.org/swiftlet", DIGEST, tmp_path_factory.mktemp("chart"))


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A key in a keyring of its own; the agent is stopped after the tests."""
    # The agent's socket needs a short path.
    home = Path("/tmp") / f"gpg-{os.getpid()}"
    home.mkdir(mode=0o700)
    patch = pytest.MonkeyPatch()
    patch.setenv("GNUPGHOME", str(home))
    try:
        made = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "release@example.org", "rsa2048", "sign"]
        subprocess.run(made, check=True, capture_output=True)
        yield Signer("release@example.org")
        subprocess.run(["gpgconf", "--kill", "all"], check=True)
    finally:
        patch.undo()
        shutil.rmtree(home)


def public_keys(folder: Path) -> Path:
    path = folder / "keys.gpg"
    path.write_bytes(subprocess.run(["gpg", "--export"], check=True, capture_output=True).stdout)
    return path


class TestChart:
    def test_the_package_names_the_released_image_by_digest(self, helm: str, package: Path) -> None:
        found = list(olm.render(helm, package))
        (deployment,) = [one for one in found if one["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"registry.example.org/swiftlet@{DIGEST}"

    def test_helm_verifies_the_signed_package_and_refuses_another(
        self, helm: str, package: Path, signer: Signer, tmp_path: Path
    ) -> None:
        signed = tmp_path / package.name
        shutil.copyfile(package, signed)
        chart.sign(signed, signer)
        verify = [helm, "verify", str(signed), "--keyring", str(public_keys(tmp_path))]
        subprocess.run(verify, check=True, capture_output=True)
        signed.write_bytes(signed.read_bytes() + b" ")
        done = subprocess.run(verify, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "sha256 sum does not match" in done.stderr

    def test_a_key_that_is_not_there_is_named(self, signer: Signer) -> None:
        with pytest.raises(ReleaseError, match=r"can't sign with nobody@example\.org"):
            Signer("nobody@example.org").clear_sign("text")


@pytest.fixture(scope="module")
def bundle(helm: str, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("bundle")
    olm.write_bundle(helm, package, RELEASE, f"registry.example.org/swiftlet@{DIGEST}", target)
    return target


@pytest.fixture(scope="module")
def version(bundle: Path) -> dict[str, Any]:
    path = bundle / "manifests" / "swiftlet.clusterserviceversion.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


class TestBundle:
    def test_it_owns_every_definition_that_it_brings(self, bundle: Path, version: dict[str, Any]) -> None:
        owned = {one["name"] for one in version["spec"]["customresourcedefinitions"]["owned"]}
        assert owned == {path.name.removesuffix(".crd.yaml") for path in bundle.glob("manifests/*.crd.yaml")}
        assert len(owned) == len(list((ROOT / "crds").glob("*.yaml")))

    def test_the_operator_has_the_rights_of_the_chart(self, helm: str, package: Path, version: dict[str, Any]) -> None:
        strategy = version["spec"]["install"]["spec"]
        rules = [rule for part in ("clusterPermissions", "permissions") for rule in strategy[part][0]["rules"]]
        rendered = [rule for one in olm.render(helm, package) if one["kind"].endswith("Role") for rule in one["rules"]]
        assert sorted(map(json.dumps, rules)) == sorted(map(json.dumps, rendered))

    def test_it_watches_the_namespaces_that_olm_names(self, version: dict[str, Any]) -> None:
        (deployment,) = version["spec"]["install"]["spec"]["deployments"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        (watched,) = [one for one in container["env"] if one["name"] == "WATCH_NAMESPACES"]
        assert watched["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['olm.targetNamespaces']"
        assert {one["type"] for one in version["spec"]["installModes"] if one["supported"]} == {
            "OwnNamespace",
            "SingleNamespace",
            "MultiNamespace",
            "AllNamespaces",
        }

    def test_there_is_an_example_of_every_kind(self, version: dict[str, Any]) -> None:
        kinds = {one["kind"] for one in json.loads(version["metadata"]["annotations"]["alm-examples"])}
        assert kinds == {"Ring", "StorageCluster", "StoragePolicy", "StorageQuota", "StorageUser"}

    def test_metadata_and_dockerfile_say_the_same(self, bundle: Path) -> None:
        labels = yaml.safe_load((bundle / "metadata" / "annotations.yaml").read_text("utf-8"))["annotations"]
        lines = (bundle / "bundle.Dockerfile").read_text("utf-8").split("\n")
        assert {line.removeprefix("LABEL ") for line in lines if line.startswith("LABEL")} == {
            f"{name}={value}" for name, value in labels.items()
        }


class TestProvenance:
    def test_every_file_is_named_by_its_digest(self, tmp_path: Path) -> None:
        (tmp_path / "chart.tgz").write_bytes(b"chart")
        path = provenance.write_statement(RELEASE, {"version": "0.3.0"}, tmp_path)
        found = json.loads(path.read_text("utf-8"))
        assert found["subject"] == [{"name": "chart.tgz", "digest": {"sha256": hashlib.sha256(b"chart").hexdigest()}}]
        assert found["predicateType"] == "https://slsa.dev/provenance/v1"
        source = found["predicate"]["buildDefinition"]["resolvedDependencies"][0]
        assert source == {"name": "source", "digest": {"gitCommit": RELEASE.commit}}

    def test_digests_are_checked_by_sha256sum_and_signed(self, tmp_path: Path, signer: Signer) -> None:
        (tmp_path / "chart.tgz").write_bytes(b"chart")
        sums = provenance.write_sums(tmp_path)
        subprocess.run(["sha256sum", "--check", "--strict", sums.name], cwd=tmp_path, check=True, capture_output=True)
        signature = signer.detached(sums)
        subprocess.run(["gpg", "--verify", str(signature), str(sums)], check=True, capture_output=True)
        (tmp_path / "chart.tgz").write_bytes(b"other")
        done = subprocess.run(["sha256sum", "--check", sums.name], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode != 0
