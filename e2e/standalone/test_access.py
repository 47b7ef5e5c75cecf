"""Who may do what, with the clients that people use for it: curl, the `swift` command, and python-swiftclient.

ACLs, temporary URLs, forms from a browser, scripts of other sites, rate limits.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from swiftclient.client import Connection, get_auth
from swiftclient.exceptions import ClientException
from swiftclient.utils import generate_temp_url

from e2e.standalone.cluster import Cluster
from e2e.standalone.conftest import Stores
from e2e.standalone.wire import Client
from swiftlet.auth.users import hash_secret

SITE = "https://www.example.org"
KEY = "the key of the account"
USERS_WITHIN_S = 20.0


@pytest.fixture(scope="module")
def cluster(stores: Stores) -> Iterator[Cluster]:
    """A store with one process for the API: what is taken away from somebody is remembered by others for a while."""
    running = stores.whole()
    with running.changed("proxy", proxy={"workers": 1}):
        yield running


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint, cluster.user, cluster.key)


@pytest.fixture
def container(client: Client) -> Iterator[str]:
    """A container of the test's own with one object, `o`."""
    name = f"access-{uuid.uuid4().hex[:12]}"
    assert client.call("PUT", name).status == 201
    assert client.call("PUT", f"{name}/o", body=b"secret").status == 201
    yield name
    for row in client.call("GET", name, query="format=json").json():
        assert client.call("DELETE", f"{name}/{row['name']}").status == 204
    assert client.call("DELETE", name).status == 204


def swift(cluster: Cluster, *arguments: str) -> str:
    """Return what the `swift` command prints."""
    environment = {**os.environ, "ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}
    command = [str(Path(sys.executable).with_name("swift")), *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout


def curl(*arguments: str) -> tuple[int, dict[str, str], str]:
    """Status, headers in lower case and body of what curl gets; redirects are not followed."""
    done = subprocess.run(
        ["curl", "-s", "-i", "--raw", *arguments], check=True, capture_output=True, text=True, timeout=60
    )
    head, _, body = done.stdout.partition("\n\n")
    while head.startswith("HTTP/1.1 100"):
        head, _, body = body.partition("\n\n")
    first, *lines = head.splitlines()
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


def token_of_new_user(cluster: Cluster, login: str, key: str) -> str:
    """The token of a new user without any role, once the proxy knows it."""
    settings = yaml.safe_load(settings_file(cluster).read_text())
    file = Path(settings["auth"]["users_file"])
    account, _, user = login.partition(":")
    users = [one for one in yaml.safe_load(file.read_text()) if (one["account"], one["user"]) != (account, user)]
    users.append({"account": account, "user": user, "roles": [], "secret_hash": hash_secret(key)})
    temporary = file.with_suffix(".new")
    temporary.write_text(yaml.safe_dump(users))
    temporary.replace(file)
    deadline = time.monotonic() + USERS_WITHIN_S
    while True:
        try:
            return str(get_auth(cluster.auth_url, login, key)[1])
        except ClientException:
            assert time.monotonic() < deadline, f"{login} can't log in"
            time.sleep(1.0)


def settings_file(cluster: Cluster) -> Path:
    """Return the path of the proxy's settings."""
    return next(Path(word) for word in cluster.services["proxy"]["command"] if word.endswith(".yaml"))


def test_acls(cluster: Cluster, client: Client, container: str) -> None:
    url = f"{cluster.endpoint}{client.base}/{container}"
    assert curl(url + "/o")[0] == 401
    swift(cluster, "post", "-r", ".referrer:*, .rlistings", container)
    assert "Read ACL: .r:*,.rlistings" in swift(cluster, "stat", container)
    assert curl(url + "/o")[2] == "secret"
    status, headers, body = curl(url)
    assert (status, body) == (200, "o\n")
    assert "x-container-read" not in headers
    assert curl("-T", os.devnull, url + "/n")[0] == 401
    swift(cluster, "post", "-r", f".r:{SITE.partition('//')[2]}", container)
    assert curl("-e", SITE + "/page", url + "/o")[0] == 200
    assert curl(url + "/o")[0] == 401

    token = token_of_new_user(cluster, "guests:eve", "a key for eve")
    other = Connection(preauthurl=f"{cluster.endpoint}{client.base}", preauthtoken=token, retries=0)
    with pytest.raises(ClientException) as refused:
        other.put_object(container, "n", b"x")
    assert refused.value.http_status == 403
    swift(cluster, "post", "-r", "guests", "-w", "guests:eve", container)
    other.put_object(container, "n", b"x")
    assert other.get_object(container, "n")[1] == b"x"
    assert [row["name"] for row in other.get_container(container)[1]] == ["n", "o"]
    with pytest.raises(ClientException) as refused:
        other.delete_container(container)
    assert refused.value.http_status == 403

    acl = json.dumps({"read-only": ["guests:eve"]})
    swift(cluster, "post", "-r", "", "-w", "", container)
    assert client.call("POST", "", {"X-Account-Access-Control": acl}).status == 204
    assert curl("-T", os.devnull, "-H", f"X-Auth-Token: {token}", url + "/n")[0] == 403
    assert curl("-H", f"X-Auth-Token: {token}", url + "/o")[2] == "secret"
    assert client.call("POST", "", {"X-Account-Access-Control": "{}"}).status == 204
    other.close()


@pytest.mark.parametrize("digest", ["sha256", "sha512"])
def test_temporary_urls(cluster: Cluster, client: Client, container: str, digest: str) -> None:
    swift(cluster, "post", "-m", f"Temp-URL-Key:{KEY}")
    path = f"{client.base}/{container}/o"
    made = swift(cluster, "tempurl", "--digest", digest, "GET", "60", path, KEY).strip()
    status, headers, body = curl(cluster.endpoint + made)
    assert (status, body) == (200, "secret")
    assert headers["content-disposition"] == "attachment; filename=\"o\"; filename*=UTF-8''o"
    assert curl(cluster.endpoint + made + "x")[0] == 401
    assert curl("-X", "DELETE", cluster.endpoint + made)[0] == 401
    status, headers, _ = curl("-I", cluster.endpoint + made + "&inline&filename=a%0d%0aEvil:%20b")
    assert status == 200
    assert headers["content-disposition"].startswith('inline; filename="a%0D%0AEvil')
    assert "evil" not in headers

    put = swift(cluster, "tempurl", "--digest", digest, "PUT", "60", f"{client.base}/{container}/up", KEY).strip()
    assert curl("-X", "PUT", "-d", "uploaded", cluster.endpoint + put)[0] == 201
    assert client.call("GET", f"{container}/up").body == b"uploaded"

    prefix = generate_temp_url(
        f"{client.base}/{container}/u", 60, KEY, "GET", prefix=True, iso8601=True, ip_range="127.0.0.0/8", digest=digest
    )
    query = prefix.partition("?")[2]
    assert curl(f"{cluster.endpoint}{client.base}/{container}/up?{query}")[2] == "uploaded"
    assert curl(f"{cluster.endpoint}{client.base}/{container}/o?{query}")[0] == 401


def form(path: str, redirect: str = "", max_file_size: int = 10_000_000) -> list[str]:
    """curl's options for a form that is signed for `path`."""
    fields = {
        "redirect": redirect,
        "max_file_size": str(max_file_size),
        "max_file_count": "2",
        "expires": str(int(time.time()) + 60),
    }
    message = "\n".join([path, *fields.values()])
    fields["signature"] = hmac.new(KEY.encode(), message.encode(), hashlib.sha256).hexdigest()
    return [option for name, value in fields.items() if value for option in ("-F", f"{name}={value}")]


def test_forms(cluster: Cluster, client: Client, container: str, tmp_path: Path) -> None:
    assert client.call("POST", container, {"X-Container-Meta-Temp-URL-Key": KEY}).status == 204
    small, large = tmp_path / "small.txt", tmp_path / "large.bin"
    small.write_bytes(b"from a form\n")
    large.write_bytes(os.urandom(5_000_000))
    path = f"{client.base}/{container}/form/"
    url = cluster.endpoint + path
    files = ["-F", f"file1=@{small}", "-F", f"file2=@{large};type=image/png"]
    assert curl(*form(path), *files, url)[2] == "201 Created"
    assert client.call("GET", f"{container}/form/small.txt").body == small.read_bytes()
    stored = client.call("GET", f"{container}/form/large.bin")
    assert (stored.body, stored.headers["Content-Type"]) == (large.read_bytes(), "image/png")

    status, headers, _ = curl(*form(path, redirect=SITE + "/done"), *files[:2], url)
    assert (status, headers["location"]) == (303, SITE + "/done?status=201&message=")
    status, _, body = curl(*form(path, max_file_size=1_000_000), *files, url)
    assert (status, body) == (400, "FormPost: max_file_size exceeded")
    assert curl(*form(path), *files[:2], url + "elsewhere/")[0] == 401


def test_scripts_of_other_sites(cluster: Cluster, client: Client, container: str) -> None:
    url = f"{cluster.endpoint}{client.base}/{container}/o"
    preflight = ["-X", "OPTIONS", "-H", f"Origin: {SITE}", "-H", "Access-Control-Request-Method: PUT"]
    assert curl(*preflight, url)[0] == 401
    swift(cluster, "post", "-H", f"X-Container-Meta-Access-Control-Allow-Origin: {SITE}", container)
    status, headers, _ = curl(*preflight, "-H", "Access-Control-Request-Headers: x-auth-token", url)
    assert (status, headers["access-control-allow-origin"]) == (200, SITE)
    assert headers["access-control-allow-headers"] == "x-auth-token"
    token = ["-H", f"X-Auth-Token: {client.token}"]
    status, headers, _ = curl("-X", "PUT", "-d", "by a script", *token, "-H", f"Origin: {SITE}", url)
    assert (status, headers["access-control-allow-origin"]) == (201, SITE)
    status, headers, body = curl(*token, "-H", "Origin: https://evil.org", url)
    assert (status, body) == (200, "by a script")
    assert "access-control-allow-origin" not in headers


def test_rate_limits(own_cluster: Cluster) -> None:
    limits = {"account_ratelimit": 0.1, "max_sleep_time_s": 0, "refuse_with": 429}
    with own_cluster.changed("proxy", proxy={"workers": 1}, rate_limits=limits):
        check_rate_limits(own_cluster)


def check_rate_limits(own_cluster: Cluster) -> None:
    client = Client(own_cluster.endpoint, own_cluster.user, own_cluster.key)
    assert client.call("PUT", "first").status == 201
    refused = client.call("PUT", "second")
    assert refused.status == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 10
    assert client.call("PUT", "first/o", body=b"x").status == 201
    shown = client.plain("GET", "/info").json()
    assert shown["ratelimit"]["account_ratelimit"] == 0.1
    assert shown["tempurl"]["allowed_digests"] == ["sha1", "sha256", "sha512"]
    assert shown["formpost"]["allowed_digests"] == ["sha1", "sha256", "sha512"]
    assert shown["swift"]["strict_cors_mode"] is True
