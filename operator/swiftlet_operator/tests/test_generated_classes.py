"""The image has no generated classes of the Kubernetes client (see the Dockerfile): nothing here may load one."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import asyncio, sys

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("kubernetes.") and name.split(".")[-2] in {"api", "models"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Gone())
try:
    from kubernetes.client import V1Pod
except ImportError:
    print("gone")

import swiftlet_operator.main, swiftlet_operator.plugin, kopf
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_kube_config_from_dict
from swiftlet_operator.kube import HttpKube, KubeError
from swiftlet_operator.manifests import CLUSTER

async def asked():
    settings = Configuration()
    one = {"name": "one"}
    await load_kube_config_from_dict({
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "one", "user": {"token": "some"}}],
    }, client_configuration=settings)
    async with ApiClient(settings) as client:
        try:
            await HttpKube(client, 1.0).get(CLUSTER, "here", "lab")
        except KubeError as error:
            print(type(error).__name__)

asyncio.run(asked())
"""


def test_the_operator_and_the_plugin_work_without_them() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["gone", "KubeUnavailable"]
