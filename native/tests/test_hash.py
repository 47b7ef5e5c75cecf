"""The digests of the native package: right, without a copy, beside other threads, and clear in refusal."""

from __future__ import annotations

import array
import hashlib
import mmap
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import swiftlet_native
import xxhash
from swiftlet_native import Hasher, md5, xxh3_64, xxh3_128

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

LENGTHS = [0, 1, 16, 17, 55, 56, 63, 64, 65, 128, 129, 240, 241, 1000, 16384, 16385, 131072, 5 << 20]
DIGESTS = {"md5": md5, "xxh3_64": xxh3_64, "xxh3_128": xxh3_128}


@pytest.fixture(params=DIGESTS)
def digest(request: pytest.FixtureRequest) -> Callable[[Buffer], object]:
    """Each of the functions that digest a whole buffer."""
    return DIGESTS[request.param]


@pytest.mark.parametrize("length", LENGTHS)
def test_functions_agree_with_the_reference(length: int) -> None:
    data = random.Random(length).randbytes(length)

    assert md5(data) == hashlib.md5(data).digest()
    assert xxh3_64(data) == xxhash.xxh3_64_intdigest(data)
    assert xxh3_128(data) == xxhash.xxh3_128_digest(data)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_hasher_agrees_with_the_reference_however_the_stream_is_cut(length: int) -> None:
    rng = random.Random(length)
    data = rng.randbytes(length)
    hasher = Hasher()
    rest = memoryview(data)
    while rest:
        cut = rng.randint(1, len(rest))
        hasher.update(rest[:cut])
        rest = rest[cut:]

    assert hasher.size == length
    assert hasher.md5_digest() == hashlib.md5(data).digest()
    assert hasher.md5_hexdigest() == hashlib.md5(data).hexdigest()
    assert hasher.xxh3_64() == xxhash.xxh3_64_intdigest(data)


def test_a_copy_goes_its_own_way() -> None:
    hasher = Hasher()
    hasher.update(b"ab")
    copy = hasher.copy()
    hasher.update(b"c")
    copy.update(b"d")

    assert hasher.md5_digest() == md5(b"abc")
    assert copy.md5_digest() == md5(b"abd")


def test_a_digest_that_was_left_out_is_refused() -> None:
    only_xxh3 = Hasher(md5=False)
    only_xxh3.update(b"abc")
    assert only_xxh3.xxh3_64() == xxh3_64(b"abc")
    with pytest.raises(ValueError, match="does not compute md5: it was created with md5=False"):
        only_xxh3.md5_hexdigest()
    with pytest.raises(ValueError, match="does not compute md5"):
        only_xxh3.md5_digest()

    only_md5 = Hasher(xxh3=False)
    only_md5.update(b"abc")
    assert only_md5.md5_digest() == md5(b"abc")
    with pytest.raises(ValueError, match="does not compute xxh3: it was created with xxh3=False"):
        only_md5.xxh3_64()


def test_streams_are_digested_side_by_side() -> None:
    bodies = [bytes([number]) * (100_000 + number) for number in range(11)]
    hashers = [Hasher(md5=number != 3) for number in range(11)]
    for cut in (slice(0, 70), slice(70, 50_000), slice(50_000, None)):
        Hasher.update_each([(hasher, memoryview(body)[cut]) for hasher, body in zip(hashers, bodies, strict=True)])
    for number, (hasher, body) in enumerate(zip(hashers, bodies, strict=True)):
        assert (hasher.size, hasher.xxh3_64()) == (len(body), xxh3_64(body))
        assert number == 3 or hasher.md5_digest() == md5(body)
    Hasher.update_each([])
    with pytest.raises(ValueError, match="twice"):
        Hasher.update_each([(hashers[0], b"1"), (hashers[0], b"2")])


def test_any_contiguous_buffer_is_taken(digest: Callable[[Buffer], object]) -> None:
    data = bytes(range(256)) * 16
    with mmap.mmap(-1, len(data)) as mapped:
        mapped.write(data)
        assert digest(mapped) == digest(data)
    assert digest(bytearray(data)) == digest(data)
    assert digest(memoryview(data)) == digest(data)
    assert digest(memoryview(data)[16:32]) == digest(data[16:32])
    assert digest(memoryview(data).cast("I")) == digest(data)
    assert digest(memoryview(data).cast("B", (64, 64))) == digest(data)
    assert digest(array.array("d", [1.0, 2.0])) == digest(array.array("d", [1.0, 2.0]).tobytes())
    assert digest(b"") == digest(bytearray()) == digest(memoryview(b""))


@pytest.mark.parametrize("wrong", ["text", None, 5, [1, 2]], ids=repr)
def test_what_is_no_buffer_is_a_type_error(wrong: Buffer, digest: Callable[[Buffer], object]) -> None:
    with pytest.raises(TypeError, match="a bytes-like object is required, not"):
        digest(wrong)
    with pytest.raises(TypeError, match="a bytes-like object is required, not"):
        Hasher().update(wrong)


def test_a_buffer_with_gaps_is_a_type_error(digest: Callable[[Buffer], object]) -> None:
    for gaps in (memoryview(b"abcdef")[::2], memoryview(b"abcdef")[::-1]):
        with pytest.raises(TypeError, match="a C-contiguous buffer is required"):
            digest(gaps)
        with pytest.raises(TypeError, match="a C-contiguous buffer is required"):
            Hasher().update(gaps)


def test_a_buffer_is_let_go_of_afterwards(digest: Callable[[Buffer], object]) -> None:
    data = bytearray(b"abc")
    hasher = Hasher()
    digest(data)
    hasher.update(data)
    data.extend(b"def")  # BufferError while anyone holds the memory
    assert hasher.md5_digest() == md5(b"abc")


PEAK_OF_DIGESTING = """
import mmap, resource
from swiftlet_native import Hasher, md5, xxh3_64, xxh3_128

def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

data = bytearray(256 << 20)
view = memoryview(data)
before = peak_kib()
for buffer in (data, view, view.toreadonly()):
    xxh3_64(buffer), xxh3_128(buffer), Hasher(md5=False).update(buffer)
md5(data), Hasher().update(data)
print(peak_kib() - before)
"""


def test_a_large_buffer_is_not_copied() -> None:
    # In a process of its own: the peak of this one may have been higher already.
    run = subprocess.run([sys.executable, "-c", PEAK_OF_DIGESTING], capture_output=True, text=True, check=True)

    assert int(run.stdout) < 16 << 10


def digest_large(data: bytes) -> None:
    md5(data)


def update_large(data: bytes) -> None:
    Hasher().update(data)


@pytest.mark.parametrize("work", [digest_large, update_large])
def test_other_threads_run_meanwhile(work: Callable[[bytes], None]) -> None:
    # If the digest held the interpreter, this thread could not take its hundreds of steps meanwhile.
    data = bytes(256 << 20)
    started = threading.Event()
    ended = threading.Event()

    def digest_in_thread() -> None:
        started.set()
        work(data)
        ended.set()

    thread = threading.Thread(target=digest_in_thread)
    thread.start()
    started.wait()
    steps = 0
    while not ended.wait(0.001):
        steps += 1
    thread.join()

    assert steps > 20


def test_threads_may_share_a_hasher() -> None:
    # Equal pieces, so that their order does not matter, some below and some above the size from which
    # on other threads run.
    hasher = Hasher()
    pieces = [bytes(1000), bytes(1 << 20), bytes(200_000)]

    def update_all() -> None:
        for piece in pieces:
            hasher.update(piece)

    threads = [threading.Thread(target=update_all) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        hasher.copy().md5_digest()
    for thread in threads:
        thread.join()

    whole = bytes(8 * sum(len(piece) for piece in pieces))
    assert hasher.size == len(whole)
    assert hasher.md5_digest() == md5(whole)
    assert hasher.xxh3_64() == xxh3_64(whole)


def test_the_package_says_its_version() -> None:
    assert swiftlet_native.__version__.count(".") == 2


def test_the_treaty_says_what_there_is(tmp_path: Path) -> None:
    treaty = Path(__file__).parent.parent / "python"
    # Files of types alone: their classes are checked where the module has them.
    apart = [file.stem for file in (treaty / "swiftlet_native").glob("_*.pyi") if file.stem != "__init__"]
    allowed = tmp_path / "apart"
    allowed.write_text("".join(f"swiftlet_native\\.{name}\n" for name in apart))
    run = subprocess.run(
        [
            *(sys.executable, "-m", "mypy.stubtest", "swiftlet_native", "--ignore-missing-stub"),
            *("--allowlist", str(allowed)),
        ],
        capture_output=True,
        text=True,
        cwd=treaty.parent,
        env=os.environ | {"MYPYPATH": str(treaty)},
        check=False,
    )

    assert run.returncode == 0, run.stdout
