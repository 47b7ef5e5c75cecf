"""A browser without a head: a page served by static web whose script writes to another origin, within CORS and beyond.

`127.0.0.1` and `localhost` are one store and, to a browser, two origins. The page writes down what it saw into its
own text, and into an object, so that the test reads both.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from e2e.standalone.cluster import Cluster
from e2e.standalone.wire import Client

PAGE = """<!doctype html><title>home</title><link rel="stylesheet" href="style.css"><body><p id="seen">waiting</p>
<script>
async function attempt(url, options) {
  try {
    const answer = await fetch(url, options);
    return {status: answer.status, etag: answer.headers.get("etag"), color: answer.headers.get("x-object-meta-color"),
            text: options.method === "GET" ? await answer.text() : ""};
  } catch (error) {
    return {refused: error.name};
  }
}
async function main() {
  const token = {"X-Auth-Token": TOKEN};
  const seen = {
    page: getComputedStyle(document.body).color,
    put: await attempt(OPEN + "/o", {method: "PUT", headers: {...token, "X-Object-Meta-Color": "red"}, body: "data"}),
    get: await attempt(OPEN + "/o", {method: "GET", headers: token}),
    closed: await attempt(CLOSED + "/o", {method: "PUT", headers: token, body: "data"}),
  };
  await attempt(OPEN + "/seen", {method: "PUT", headers: token, body: JSON.stringify(seen)});
  document.getElementById("seen").textContent = JSON.stringify(seen);
}
main();
</script>
"""


@pytest.mark.slow
def test_a_page_of_static_web_and_a_put_to_another_origin(cluster: Cluster, client: Client, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: hack/setup --clients installs it"
    parts = urlsplit(cluster.endpoint)
    here = f"http://127.0.0.1:{parts.port}"
    there = f"http://localhost:{parts.port}{client.base}"
    web = {"X-Container-Read": ".r:*", "X-Container-Meta-Web-Index": "index.html"}
    assert client.call("PUT", "browser-site", web).status == 201
    allowed = {
        "X-Container-Meta-Access-Control-Allow-Origin": here,
        "X-Container-Meta-Access-Control-Expose-Headers": "X-Object-Meta-Color ETag",
    }
    assert client.call("PUT", "browser-open", allowed).status == 201
    other = {"X-Container-Meta-Access-Control-Allow-Origin": "https://somebody.else.org"}
    assert client.call("PUT", "browser-closed", other).status == 201
    page = PAGE.replace("TOKEN", json.dumps(client.token))
    page = page.replace("OPEN", json.dumps(there + "/browser-open")).replace(
        "CLOSED", json.dumps(there + "/browser-closed")
    )
    css = b"body { color: rgb(1, 2, 3) }"
    assert client.call("PUT", "browser-site/index.html", {"Content-Type": "text/html"}, page.encode()).status == 201
    assert client.call("PUT", "browser-site/style.css", {"Content-Type": "text/css"}, css).status == 201

    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=60000", "--dump-dom"]
    command += [f"{here}{client.base}/browser-site"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    found = re.search(r'<p id="seen">(.*?)</p>', done.stdout)
    assert found, done.stdout + done.stderr[-3000:]
    seen = json.loads(found.group(1))
    etag = "8d777f385d3dfec8815d20f7496026dc"
    assert seen["page"] == "rgb(1, 2, 3)"
    assert seen["put"] == {"status": 201, "etag": etag, "color": None, "text": ""}
    assert seen["get"] == {"status": 200, "etag": etag, "color": "red", "text": "data"}
    assert seen["closed"] == {"refused": "TypeError"}

    assert client.call("GET", "browser-open/seen").json() == seen
    assert client.call("GET", "browser-open/o").body == b"data"
    assert client.call("GET", "browser-closed").text == ""
