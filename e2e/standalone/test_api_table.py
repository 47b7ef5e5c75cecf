"""`docs/swift-api.yaml` leaves nothing out, names tests that are there, and the page is made from it.

A test shows a header, parameter or status only if it names it, or the file around it does where it is a table.
"""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from e2e.api_table import PAGE, ROOT, Row, page, rows, shows, sources
from swiftlet.api.http.metadata import CONTAINER_SYSMETA
from swiftlet.api.tests.openapi import document, operations

EVERY = list(rows())
METADATA = (
    "X-Object-Meta-",
    "X-Container-Meta-",
    "X-Account-Meta-",
    "X-Remove-Container-Meta-",
    "X-Remove-Account-Meta-",
)
PREFIXES = frozenset(
    {"X-", "X-Container-Meta-Access-Control-", "X-Account-Quota-", "X-Remove-", "X-Remove-Account-Quota-"}
)
"""In the code: what names of headers begin with."""
REFERENCE = """
Accept Accept-Ranges Content-Disposition Content-Encoding Content-Length Content-Type Date Destination
Destination-Account ETag If-Match If-Modified-Since If-None-Match If-Unmodified-Since Last-Modified Range
Transfer-Encoding X-Account-Access-Control X-Account-Bytes-Used X-Account-Container-Count X-Account-Meta-Quota-Bytes
X-Account-Meta-Temp-URL-Key X-Account-Meta-Temp-URL-Key-2 X-Account-Object-Count
X-Account-Storage-Policy-name-Bytes-Used X-Account-Storage-Policy-name-Container-Count
X-Account-Storage-Policy-name-Object-Count X-Auth-Token X-Container-Bytes-Used
X-Container-Meta-Access-Control-Allow-Origin X-Container-Meta-Access-Control-Expose-Headers
X-Container-Meta-Access-Control-Max-Age X-Container-Meta-Quota-Bytes X-Container-Meta-Quota-Count
X-Container-Meta-Temp-URL-Key X-Container-Meta-Temp-URL-Key-2 X-Container-Meta-Web-Directory-Type
X-Container-Object-Count X-Container-Read X-Container-Sync-Key X-Container-Sync-To X-Container-Write X-Copied-From
X-Copied-From-Account X-Copied-From-Last-Modified X-Copy-From X-Copy-From-Account X-Delete-After X-Delete-At
X-Detect-Content-Type X-Fresh-Metadata X-History-Location X-Newest X-Object-Manifest X-Openstack-Request-Id
X-Remove-History-Location X-Remove-Versions-Location X-Service-Token X-Static-Large-Object X-Storage-Policy
X-Symlink-Target X-Symlink-Target-Account X-Timestamp X-Trans-Id X-Trans-Id-Extra X-Versions-Enabled
X-Versions-Location bulk-delete delimiter end_marker extract-archive filename format limit marker multipart-manifest
path prefix reverse swiftinfo_expires swiftinfo_sig symlink temp_url_expires temp_url_sig version-id versions
"""
"""Headers and parameters of https://docs.openstack.org/api-ref/object-store/, without metadata of any name."""
REFERENCE_STATUS = {
    "COPY object": "201",
    "DELETE account": "204 401 403 404",
    "DELETE container": "204 404 409",
    "DELETE object": "204 404",
    "GET /info": "200",
    "GET /v1/endpoints": "201",
    "GET account": "200 204",
    "GET container": "200 204 404",
    "GET object": "200 404 416",
    "HEAD account": "204 401",
    "HEAD container": "204",
    "HEAD object": "200",
    "POST account": "204",
    "POST container": "204 404",
    "POST object": "202 307 400",
    "PUT container": "201 202 400 404 507",
    "PUT object": "201 404 408 411 422",
}
"""Its status codes: those that an operation names, in its lists, its text and its examples."""


def names(kind: str) -> set[str]:
    return {row.what.lower() for row in EVERY if row.kind == kind}


@pytest.mark.parametrize("row", EVERY, ids=lambda row: f"{row.section}: {row.what}")
def test_the_tests_are_there_and_show_it(row: Row) -> None:
    assert row.tests
    for test in row.tests:
        text = shows(test)
        assert text is not None, f"{test} does not exist"
        whole = sources()[test.partition("::")[0]]
        word = row.what.rpartition(" ")[2] if row.kind == "status" else row.what
        if row.kind != "feature":
            assert word.lower() in text.lower() or word.lower() in whole.lower(), f"{test} does not name {word}"


def test_nothing_is_there_twice() -> None:
    counts = Counter((row.section, row.kind, row.what) for row in EVERY)
    assert [row for row, count in counts.items() if count > 1] == []
    assert len(EVERY) > 300


def test_every_header_and_parameter_of_the_reference_has_a_row() -> None:
    known = names("header") | names("query")
    assert [name for name in REFERENCE.split() if name.lower() not in known] == []


def test_every_status_of_the_reference_has_a_row() -> None:
    shown = {row.what for row in EVERY if row.kind == "status"}
    told = {f"{operation} {status}" for operation, codes in REFERENCE_STATUS.items() for status in codes.split()}
    assert sorted(told - shown) == []


def test_every_operation_of_the_description_has_a_row() -> None:
    kinds = {"/v1/{account}": "account", "/v1/{account}/{container}": "container"}
    kinds["/v1/{account}/{container}/{object}"] = "object"
    shown = {tuple(row.what.split()[:2]) for row in EVERY if row.kind == "status"}
    for operation in operations(document()):
        if operation.path in kinds:
            assert (operation.method, kinds[operation.path]) in shown, operation.id


def test_every_header_and_parameter_of_the_description_has_a_row() -> None:
    for operation in operations(document()):
        for one in operation.parameters:
            if one.place == "path" or one.name.startswith("swiftinfo_"):
                continue
            known = names(one.place)
            shown = one.name.lower() in known or any(
                one.name.lower().startswith(prefix) for prefix in known if prefix.endswith("-")
            )
            assert shown, f"{operation.id}: {one.name}"


def test_every_header_in_the_code_has_a_row() -> None:
    known = names("header")
    for room in ("api", "auth", "quota", "web"):
        for file in sorted((ROOT / "services/swiftlet" / room).glob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                    continue
                name = node.value
                # Kept with containers for the store itself: no request brings it, no answer shows it.
                if name.startswith(CONTAINER_SYSMETA):
                    continue
                if name.startswith("X-") and name.replace("-", "").isalnum() and name not in PREFIXES:
                    plain = name.lower()
                    assert plain in known or plain + "-" in known or name in METADATA, f"{file.name}: {name}"


def test_the_page_is_made_from_it() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"
