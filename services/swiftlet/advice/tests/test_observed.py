"""Loads from pages of metrics."""

from __future__ import annotations

import pytest

from swiftlet.advice.errors import AdviceError
from swiftlet.advice.observed import observed, parse


def proxy(get: float, put: float, received: float, sent: float) -> str:
    return f"""# HELP swiftlet_http_requests_total HTTP requests answered.
# TYPE swiftlet_http_requests_total counter
swiftlet_http_requests_total{{method="GET",service="proxy",status="200"}} {get}
swiftlet_http_requests_total{{method="PUT",service="proxy",status="201"}} {put}
swiftlet_http_requests_total{{method="GET",service="proxy",status="404"}} 9999.0
swiftlet_http_received_bytes_total{{service="proxy"}} {received}
swiftlet_http_sent_bytes_total{{service="proxy"}} {sent:e}
swiftlet_odd{{text="a \\"quoted\\" }} brace"}} +Inf
not a sample at all
"""


def server(get: float) -> str:
    return f'swiftlet_object_requests_total{{device="d0",operation="get",outcome="ok"}} {get}\n'


def test_samples_are_read_with_their_labels_and_what_is_none_is_skipped() -> None:
    found = parse(proxy(1, 2, 3, 4e9))
    assert len(found) == 6
    assert found["swiftlet_http_sent_bytes_total", frozenset({("service", "proxy")})] == 4e9


def test_rates_and_sizes_are_those_between_two_readings_of_all_proxies() -> None:
    one = (parse(proxy(100, 10, 1000, 10_000)), parse(proxy(300, 20, 3000, 20_000)))
    other = (parse(proxy(0, 0, 0, 0)), parse(proxy(0, 30, 10_000, 0)))
    load = observed([one, other], 10, 1e12)
    assert {name: rate for name, rate in load.per_second.items() if rate} == {"read": 20, "create": 4}
    assert (load.sizes.mean, load.read_sizes.mean, load.stored_bytes) == (300, 50, 1e12)


def test_object_servers_tell_objects_from_listings() -> None:
    pages = [(parse(proxy(0, 0, 0, 0)), parse(proxy(100, 0, 0, 800))), (parse(server(5)), parse(server(85)))]
    load = observed(pages, 10)
    assert (load.of("read"), load.of("list")) == (8, 2)
    assert load.read_sizes.mean == 10


def test_a_service_that_has_restarted_counts_from_its_start() -> None:
    assert observed([(parse(proxy(500, 0, 0, 0)), parse(proxy(20, 0, 0, 0)))], 10).of("read") == 2


def test_without_a_proxy_nothing_is_known() -> None:
    with pytest.raises(AdviceError, match="no page of a proxy"):
        observed([(parse(server(1)), parse(server(2)))], 1)
