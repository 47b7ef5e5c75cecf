"""Errors that a fan-out has seen are freed with it, not by the garbage collector thousands at a time."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path as Directory

from swiftlet.errors import NotFound, SwiftletError
from swiftlet.placement.tests.cluster import PATH, memory_cluster


def errors() -> list[SwiftletError]:
    return [one for one in gc.get_objects() if isinstance(one, SwiftletError)]


async def test_errors_of_a_read_are_in_no_circle(tmp_path: Directory) -> None:
    async with memory_cluster(tmp_path, devices=5) as cluster:
        await cluster.make_container()
        gc.collect()
        before = errors()
        gc.disable()
        try:
            for _ in range(20):
                with suppress(NotFound):
                    await cluster.objects.head(PATH, 0)
            assert not [one for one in errors() if all(one is not other for other in before)]
        finally:
            gc.enable()
