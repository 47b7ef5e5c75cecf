"""Objects move into a policy with erasure coding and out of it, over real object servers, with movers that end."""

from __future__ import annotations

from pathlib import Path as Directory

import pytest

from swiftlet.api.tests.coded import CODED, coded_proxy
from swiftlet.errors import NotFound
from swiftlet.model import PostRecord
from swiftlet.names import Path
from swiftlet.placement.moving import Move, Moved, MovingObjects
from swiftlet.placement.tests.cluster import ACCOUNT, at, footer_of, record_of

PATH = Path(ACCOUNT, "c", "o")
BODY = bytes(range(251)) * 300


class Killed(Exception):
    """The mover ended."""


@pytest.mark.parametrize(("source", "target"), [(0, CODED), (CODED, 0)])
async def test_an_object_moves_with_its_etag_and_metadata_whenever_movers_end(
    tmp_path: Directory, source: int, target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coded_proxy(tmp_path) as (proxy, _):
        cluster = proxy.api.objects.by_policy
        objects = MovingObjects(cluster, Move(source, target, target))
        left = 10**6
        for name in ("head", "get", "upload", "begin_upload", "post", "delete"):
            real = getattr(cluster, name)

            async def counted(*args: object, real: object = real, **more: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return await real(*args, **more)  # type: ignore[operator]

            monkeypatch.setattr(cluster, name, counted)

        async def no_pace(_size: int) -> None:
            return None

        ended, is_done, number = 0, False, 2
        while not is_done:
            left, ended, number = 10**6, ended + 1, number + 10
            body = BODY + str(number).encode()
            await cluster.put(PATH, source, record_of(PATH, at(number), {"n": "0"}), body, footer_of(body))
            await cluster.post(PATH, source, PostRecord(at(number + 1), {"n": str(number)}))
            before = await objects.head(PATH)
            left = ended
            try:
                await objects.move(PATH, no_pace)
                is_done = True
            except Killed:
                pass
            left = 10**6
            for _ in range(2):
                download = await objects.get(PATH)
                assert b"".join([chunk async for chunk in download.chunks()]) == body
                info = await objects.head(PATH)
                assert (info.metadata, info.etag, info.meta_timestamp) == (
                    {"n": str(number)},
                    before.etag,
                    before.meta_timestamp,
                )
                await objects.move(PATH, no_pace)
            with pytest.raises(NotFound):
                await cluster.head(PATH, source, newest=True)
            assert await objects.move(PATH, no_pace) is Moved.ABSENT
        await objects.delete(PATH, at(number + 5))
        with pytest.raises(NotFound):
            await objects.head(PATH)
        assert ended > 8
