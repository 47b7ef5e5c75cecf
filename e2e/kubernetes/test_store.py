"""A store as the examples declare it: the operator makes it, a real client uses it."""

from __future__ import annotations

import hashlib
import random
from contextlib import closing

import yaml
from swiftclient.client import Connection

from e2e.kubernetes.conftest import EXAMPLES
from e2e.kubernetes.kube import Namespace

READY_WITHIN_S = 300
SIZES_BYTES = (0, 1, 1 << 20, (1 << 20) + 1, 20_000_000)
"""Nothing, the least, the largest that goes in one piece, the smallest that does not, and many pieces."""


def test_the_example_becomes_a_store_that_keeps_objects(namespace: Namespace) -> None:
    text = (EXAMPLES / "storagecluster.yaml").read_text()
    cluster, user = yaml.safe_load_all(text)
    name, login = cluster["metadata"]["name"], user["metadata"]["name"]
    namespace.apply(text)
    namespace.wait_until_true("storagecluster", name, "Ready", READY_WITHIN_S)
    namespace.wait_until_true("storageuser", login, "Ready", READY_WITHIN_S)

    credentials = namespace.secret(f"{login}-credentials")
    contents = [random.Random(size).randbytes(size) for size in SIZES_BYTES]
    with (
        namespace.forwarded(f"service/{name}", 80) as port,
        closing(Connection(f"http://127.0.0.1:{port}/auth/v1.0", credentials["user"], credentials["key"])) as swift,
    ):
        swift.put_container("things")
        for content in contents:
            etag = swift.put_object("things", f"{len(content)} bytes", content)
            assert etag == hashlib.md5(content, usedforsecurity=False).hexdigest()
        for content in contents:
            _, found = swift.get_object("things", f"{len(content)} bytes")
            assert found == content
        _, listing = swift.get_container("things")
        assert {one["name"]: one["bytes"] for one in listing} == {f"{size} bytes": size for size in SIZES_BYTES}
