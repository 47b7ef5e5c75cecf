"""The parser of forms: any cut of the same bytes gives the same parts; whatever can grow has an end."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.api.http.multipart import MAX_PART_HEADERS, BadForm, Multipart, Part, parse_parameters

BOUNDARY = "XyZ"


async def feed(data: bytes, step: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), step):
        yield data[start : start + step]


async def parts_of(data: bytes, step: int = 7, boundary: str = BOUNDARY) -> list[tuple[Part, bytes]]:
    document = Multipart(feed(data, step), boundary)
    parts = []
    while (part := await document.next_part()) is not None:
        pieces = []
        while piece := await document.read():
            pieces.append(piece)
        parts.append((part, b"".join(pieces)))
    return parts


def form(*bodies: bytes, head: bytes = b'Content-Disposition: form-data; name="n"', end: bytes = b"--\r\n") -> bytes:
    delimiter = b"--" + BOUNDARY.encode()
    return b"".join(delimiter + b"\r\n" + head + b"\r\n\r\n" + body + b"\r\n" for body in bodies) + delimiter + end


@given(
    st.lists(st.one_of(st.binary(max_size=50), st.text("\r\n-XyZ", max_size=30).map(str.encode)), max_size=4),
    st.integers(1, 40),
)
async def test_any_cut_gives_the_same_parts(bodies: list[bytes], step: int) -> None:
    bodies = [body for body in bodies if b"\r\n--" + BOUNDARY.encode() not in b"\r\n" + body + b"\r\n"]
    found = await parts_of(form(*bodies), step)
    assert [body for _, body in found] == bodies
    assert all(part.parameters == {"name": "n"} for part, _ in found)


async def test_oddities_that_are_allowed() -> None:
    for data in (b"\r\n\r\n" + form(b"x"), form(b"x", end=b"--"), form(b"x", end=b"--trailer that nobody reads")):
        assert [body for _, body in await parts_of(data)] == [b"x"]
    padded = form(b"x").replace(b"XyZ\r\n", b"XyZ \t\r\n", 1)
    assert len(await parts_of(padded)) == 1
    [(part, body)] = await parts_of(b"--XyZ\r\n\r\nbody\r\n--XyZ--")
    assert (part.headers, body) == ({}, b"body")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "starting boundary"),
        (b"nonsense", "starting boundary"),
        (b"preamble\r\n" + form(b"x"), "starting boundary"),
        (b"\r\n" * 200 + form(b"x"), "starting boundary"),
        (b"--XyZ", "followed by a line end"),
        (b"--XyZQ\r\n\r\n", "followed by a line end"),
        (b"--XyZ" + b" " * 1000, "followed by a line end"),
        (b"--XyZ\r\nA: b", "ends in the headers"),
        (b"--XyZ\r\nA: b\r\n\r\nbody", "ends in the middle"),
        (form(b"x")[:-9], "ends in the middle"),
        (form(b"x", head=b"no colon"), "malformed header"),
        (form(b"x", head=b": nameless"), "malformed header"),
        (form(b"x", head=b"A: b\nX-Evil: c"), "malformed header"),
        (form(b"x", head=b"A: b\x00"), "malformed header"),
        (form(b"x", head=b"A: \xff"), "not valid UTF-8"),
        (form(b"x", head=b"A: " + b"b" * MAX_PART_HEADERS), "longer than"),
        (form(b"x", head=b"A: b\r\n" * MAX_PART_HEADERS), "longer than"),
    ],
)
@pytest.mark.parametrize("step", [1, 5, 100_000])
async def test_what_is_no_form(data: bytes, reason: str, step: int) -> None:
    with pytest.raises(BadForm, match=reason):
        await parts_of(data, step)


@pytest.mark.parametrize("boundary", ["", "x" * 201, "a\r\nb", "\u00e9", "a\0"])
def test_what_is_no_boundary(boundary: str) -> None:
    with pytest.raises(BadForm, match="boundary"):
        Multipart(feed(b"", 1), boundary)


async def test_headers_without_end_are_not_collected() -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        yield b"--XyZ\r\nA: "
        while True:
            taken += 4096
            yield b"b" * 4096

    with pytest.raises(BadForm, match="longer than"):
        await Multipart(endless(), BOUNDARY).next_part()
    assert taken <= MAX_PART_HEADERS + 2 * 4096


async def test_a_part_is_never_held_whole() -> None:
    document = Multipart(feed(form(bytes(1 << 22)), 65_536), BOUNDARY)
    assert await document.next_part() is not None
    largest = 0
    while piece := await document.read():
        largest = max(largest, len(piece))
    assert largest <= 65_536 + 100


async def test_many_small_parts_are_read_in_time_linear_in_their_number() -> None:
    data = form(*[b""] * 60_000)
    began = time.perf_counter()
    assert len(await parts_of(data, len(data))) == 60_000
    assert time.perf_counter() - began < 10, "each part used to copy what was left of the body"


async def test_what_has_been_taken_apart_is_counted() -> None:
    data = form(b"x" * 1000, b"y")
    document = Multipart(feed(data, 64), BOUNDARY)
    await document.next_part()
    while await document.read():
        pass
    assert document.taken == len(b"\r\n") + data.index(b"x\r\n--") + 1 + len(b"\r\n--XyZ")


async def test_a_body_made_to_look_like_delimiters_is_read_in_no_time() -> None:
    boundary = "-" * 150 + "a"
    body = b"\r\n--" + b"-" * 150
    data = b"--" + boundary.encode() + b"\r\n\r\n" + body * 20_000 + b"\r\n--" + boundary.encode() + b"--"
    began = time.perf_counter()
    [(_, found)] = await parts_of(data, 65_536, boundary)
    assert len(found) == len(body) * 20_000
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    ("header", "value", "parameters"),
    [
        ("", "", {}),
        ("form-data", "form-data", {}),
        ('Form-Data; name="a b"; filename="c;d=e.txt"', "form-data", {"name": "a b", "filename": "c;d=e.txt"}),
        ("form-data; name=a; filename=b.txt", "form-data", {"name": "a", "filename": "b.txt"}),
        (r'form-data; filename="a\"b.txt"; name=x', "form-data", {"filename": 'a"b.txt', "name": "x"}),
        (r'form-data; filename="C:\dir\f.txt"', "form-data", {"filename": r"C:\dir\f.txt"}),
        ('form-data; filename="open', "form-data", {"filename": "open"}),
        ('form-data; filename=""', "form-data", {"filename": ""}),
        ('form-data; name="a"; name="b"', "form-data", {"name": "a"}),
        ("form-data; junk", "form-data", {}),
        ("multipart/form-data; boundary=----X", "multipart/form-data", {"boundary": "----X"}),
    ],
)
def test_parameters(header: str, value: str, parameters: dict[str, str]) -> None:
    assert parse_parameters(header) == (value, parameters)


def test_of_many_parameters_the_first_count() -> None:
    _, parameters = parse_parameters("form-data; " + "; ".join(f"p{number}=x" for number in range(1000)))
    assert list(parameters) == [f"p{number}" for number in range(20)]


@pytest.mark.parametrize(
    "text", [';="\\"' * 20_000, "a;" * 50_000, '"' * 100_000, "=" * 100_000, ';a="' + '\\"' * 50_000]
)
def test_parameters_are_read_in_no_time(text: str) -> None:
    began = time.perf_counter()
    parse_parameters("form-data;" + text)
    assert time.perf_counter() - began < 1
